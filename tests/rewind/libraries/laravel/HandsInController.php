<?php

declare(strict_types=1);

namespace App\Http\Controllers;

use App\Jobs\Told;
use Illuminate\Http\JsonResponse;
use Illuminate\Http\Request;
use Illuminate\Support\Facades\Cache;
use Illuminate\Support\Facades\DB;
use Illuminate\Support\Facades\Http;
use Illuminate\Support\Facades\Log;
use Illuminate\Support\Facades\Mail;
use Illuminate\Support\Facades\Redis;

/** Hands in with the framework's own services: queues, logs, caches, the database, Redis, mails, the session, its end. */
final class HandsInController
{
    public function __invoke(Request $request): JsonResponse
    {
        $v = (string) $request->query('visitor', 'Warm');
        $out = (string) getenv('OUT');
        $got = [];
        dispatch((new Told("laravel_queue_database of $v"))->onConnection('database'));
        dispatch((new Told("laravel_queue_redis of $v"))->onConnection('redis'));
        dispatch_sync(new Told("laravel_queue_sync of $v"));
        Told::dispatchAfterResponse("laravel_queue_after of $v");
        app()->terminating(static fn () => file_put_contents("$out/laravel_terminating.log", "of $v\n", FILE_APPEND));
        Log::channel('plain')->info("of $v");
        Log::channel('crossed')->info("of $v");
        Log::channel('buffered')->info("of $v");
        Log::stack(['plain', 'buffered'])->error("of $v");
        foreach (['file', 'redis', 'apc', 'database'] as $store) {
            $got[] = Cache::store($store)->add("of-$v", $v, 600);
            Cache::store($store)->add("n-$v", 0, 600);
            $got[] = Cache::store($store)->increment("n-$v");
        }
        Cache::store('redis')->tags(['names'])->put("of-$v", $v, 600);
        $got[] = Cache::store('redis')->lock("only-$v", 600)->get();
        $got[] = Cache::store('file')->lock('passing', 600)->get(static fn () => 'got it');
        DB::table('arrivals')->insert(['name' => "of $v"]);
        DB::transaction(static fn () => DB::table('arrivals')->insert(['name' => "of $v"]));
        Redis::rpush('arrived:laravel_redis', "of $v");
        Http::get('http://127.0.0.1:' . getenv('HTTP') . "/laravel_http?of+$v");
        Mail::raw('text', static fn ($message) => $message->to('b@example.org')->from('a@example.org')->subject("laravel_mail of $v"));
        $got[] = $request->session()->get('n', 0);
        $request->session()->put('n', $request->session()->get('n', 0) + 1);
        DB::beginTransaction();
        DB::table('arrivals')->insert(['name' => "of $v, rolled back"]);

        return response()->json($got);
    }

    /** What workers on the command line have done with jobs. */
    public function workedOff(): JsonResponse
    {
        $lines = static fn (string $queue): array => @file(getenv('OUT') . "/laravel_queue_$queue.log", FILE_IGNORE_NEW_LINES) ?: [];

        return response()->json(['database' => $lines('database'), 'redis' => $lines('redis')]);
    }

    public function arrived(Request $request): JsonResponse
    {
        $visitors = explode(',', (string) $request->query('visitors'));
        $found = [];
        foreach (['file', 'redis', 'apc', 'database'] as $store) {
            $found[$store] = array_values(array_filter($visitors, static fn ($v) => Cache::store($store)->get("of-$v") === $v && (int) Cache::store($store)->get("n-$v") === 1));
        }
        $found['tagged'] = array_values(array_filter($visitors, static fn ($v) => Cache::store('redis')->tags(['names'])->get("of-$v") === $v));

        return response()->json($found);
    }
}

