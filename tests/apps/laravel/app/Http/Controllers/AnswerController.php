<?php

declare(strict_types=1);

namespace App\Http\Controllers;

use App\Jobs\Later;
use App\Models\Note;
use App\Models\User;
use App\Signals;
use App\Trail;
use Illuminate\Http\JsonResponse;
use Illuminate\Http\Request;
use Illuminate\Http\Response;
use Illuminate\Support\Facades\App;
use Illuminate\Support\Facades\DB;
use RuntimeException;
use Symfony\Component\HttpFoundation\StreamedResponse;

/** Every kind of answer that needs no page. */
final class AnswerController
{
    public function __construct(private Trail $trail)
    {
    }

    public function json(): JsonResponse
    {
        return response()->json(['status' => 'OK']);
    }

    /** What the application was told, for the test to compare with what it sent. */
    public function echo(Request $request): JsonResponse
    {
        return response()->json([
            'method' => $request->method(),
            'query' => $request->query(),
            'body' => $request->json()->all(),
            'cookies' => $request->cookies->all(),
            'header' => $request->header('X-Test'),
            'uri' => $request->fullUrl(),
            'home' => route('home'),
            'timezone' => date_default_timezone_get(),
        ])->cookie('one', '1')->cookie('two', 'a b');
    }

    /** The controller, too, is kept with its route, and the singleton in it. */
    public function trail(string $step): JsonResponse
    {
        $this->trail->add($step);

        return response()->json($this->trail->steps);
    }

    public function statics(Trail $trail): JsonResponse
    {
        $trail->add('statics');

        return response()->json(['pid' => getmypid(), 'calls' => Trail::$calls]);
    }

    /** What the application is set to; with a locale it changes that and more for this request. */
    public function settings(?string $locale = null): JsonResponse
    {
        if ($locale !== null) {
            App::setLocale($locale);
            config(['app.name' => 'changed', 'added' => ['deep' => true]]);
            app()->singleton('added', static fn (): string => 'changed');
        }

        return response()->json([
            'greeting' => __('board.greeting'),
            'name' => config('app.name'),
            'added' => config('added'),
            'bound' => app()->bound('added'),
        ]);
    }

    /** Two lines, the second when the test says so. */
    public function stream(Signals $signals, string $name): StreamedResponse
    {
        return response()->stream(static function () use ($signals, $name): void {
            echo "first\n";
            ob_flush();
            flush();
            $signals->wait($name);
            echo "second\n";
        }, 200, ['Content-Type' => 'text/plain', 'X-Accel-Buffering' => 'no']);
    }

    public function later(string $name): Response
    {
        Later::dispatchAfterResponse($name);

        return response('later');
    }

    public function broken(): never
    {
        throw new RuntimeException('broken on purpose');
    }

    /** A fatal error, which no code can catch. */
    public function exhausted(): never
    {
        for ($all = []; ; ) {
            $all[] = str_repeat('x', 1 << 20);
        }
    }

    /** Code that predates the framework ends like this. */
    public function exit(): never
    {
        header('Content-Type: text/plain');
        echo 'gone';
        exit;
    }

    /** Ends within a transaction: nobody commits it, and nobody may be kept waiting for its lock. */
    public function halfDone(): never
    {
        DB::beginTransaction();
        $note = new Note(['text' => 'never to be seen']);
        $note->user()->associate(User::firstWhere('name', 'archive'))->save();
        exit('half done');
    }
}
