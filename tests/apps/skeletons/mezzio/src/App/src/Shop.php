<?php

declare(strict_types=1);

namespace App;

use Laminas\Diactoros\Response\HtmlResponse;
use Laminas\Diactoros\Response\RedirectResponse;
use Mezzio\Helper\ServerUrlHelper;
use Mezzio\Helper\UrlHelper;
use Mezzio\Router\RouteResult;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Server\RequestHandlerInterface;

final class Shop implements RequestHandlerInterface
{
    private static int $requests = 0;

    public function __construct(private UrlHelper $url, private ServerUrlHelper $absolute, private string $name)
    {
    }

    public function handle(ServerRequestInterface $request): ResponseInterface
    {
        ++self::$requests;
        $action = $request->getAttribute(RouteResult::class)->getMatchedRouteName();

        return $this->{$action}($request)->withHeader('X-Requests', (string) self::$requests);
    }

    private function home(): ResponseInterface
    {
        $url = $this->absolute->generate($this->url->generate('person', ['name' => 'ada']));

        return new HtmlResponse("<a href=\"{$url}\">Ada</a> of {$this->name}");
    }

    private function person(ServerRequestInterface $request): ResponseInterface
    {
        $page = $request->getQueryParams()['page'] ?? '';

        return new HtmlResponse("{$request->getAttribute('name')} at {$request->getUri()->getPath()} page {$page}");
    }

    private function form(ServerRequestInterface $request): ResponseInterface
    {
        session_start();
        if ($request->getMethod() === 'GET') {
            $_SESSION['token'] ??= bin2hex(random_bytes(16));

            return new HtmlResponse('<p id="sent">'.htmlspecialchars($_SESSION['sent'] ?? 'nothing').'</p>'
                .'<form method="post" action="/form" enctype="multipart/form-data">'
                ."<input type=\"hidden\" name=\"token\" value=\"{$_SESSION['token']}\"><input name=\"name\"><input type=\"file\" name=\"photo\"></form>");
        }
        $sent = $request->getParsedBody();
        if (!hash_equals($_SESSION['token'] ?? random_bytes(16), $sent['token'] ?? '')) {
            return new HtmlResponse('no token', 403);
        }
        $photo = $request->getUploadedFiles()['photo'] ?? null;
        $seen = $photo?->getError() === UPLOAD_ERR_OK ? $photo->getClientFilename().' '.sha1((string) $photo->getStream()) : 'no photo';
        $_SESSION['sent'] = "{$sent['name']}, {$seen}";

        return new RedirectResponse('/form');
    }

    private function visits(): ResponseInterface
    {
        session_start();
        $_SESSION['visits'] = ($_SESSION['visits'] ?? 0) + 1;

        return new HtmlResponse((string) $_SESSION['visits']);
    }

    private function cookie(ServerRequestInterface $request): ResponseInterface
    {
        $had = $request->getCookieParams()['taste'] ?? 'none';

        return new HtmlResponse("had {$had}", 200, ['Set-Cookie' => "taste={$request->getAttribute('taste')}; path=/"]);
    }

    private function fails(): never
    {
        throw new \RuntimeException('it fails');
    }

    private function leave(): never
    {
        echo 'left';
        exit;
    }
}
