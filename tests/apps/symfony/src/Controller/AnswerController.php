<?php

declare(strict_types=1);

namespace App\Controller;

use App\Signals;
use App\Trail;
use Symfony\Component\HttpFoundation\Cookie;
use Symfony\Component\HttpFoundation\JsonResponse;
use Symfony\Component\HttpFoundation\RedirectResponse;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpFoundation\StreamedResponse;

/** Every kind of answer that needs no page. */
final class AnswerController
{
    public function json(): JsonResponse
    {
        return new JsonResponse(['status' => 'OK']);
    }

    /** What the application was told, for the test to compare with what it sent. */
    public function echo(Request $request): JsonResponse
    {
        $response = new JsonResponse([
            'method' => $request->getMethod(),
            'query' => $request->query->all(),
            'body' => $request->toArray(),
            'cookies' => $request->cookies->all(),
            'header' => $request->headers->get('X-Test'),
            'uri' => $request->getUri(),
        ]);
        $response->headers->setCookie(Cookie::create('one', '1'));
        $response->headers->setCookie(Cookie::create('two', 'a b'));

        return $response;
    }

    /** Two lines, the second when the test says so. */
    public function stream(Signals $signals, string $name): StreamedResponse
    {
        return new StreamedResponse(static function () use ($signals, $name): void {
            echo "first\n";
            ob_flush();
            flush();
            $signals->wait($name);
            echo "second\n";
        }, 200, ['Content-Type' => 'text/plain', 'X-Accel-Buffering' => 'no']);
    }

    public function broken(): never
    {
        throw new \RuntimeException('broken on purpose');
    }

    /** Code that predates the framework ends like this. */
    public function exit(): never
    {
        header('Content-Type: text/plain');
        echo 'gone';
        exit;
    }

    public function leave(): RedirectResponse
    {
        return new RedirectResponse('/json', Response::HTTP_SEE_OTHER);
    }

    /** An answer, and work after it: see LaterListener. */
    public function later(Request $request, string $name): Response
    {
        $request->attributes->set('later', $name);

        return new Response('later');
    }

    public function trail(Trail $trail, string $step): JsonResponse
    {
        $trail->add($step);

        return new JsonResponse($trail->steps());
    }
}
