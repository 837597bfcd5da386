<?php

declare(strict_types=1);

namespace App;

use Illuminate\Foundation\Support\Providers\RouteServiceProvider;
use Illuminate\Http\Request;
use Illuminate\Support\Facades\Route;

/** A Laravel application in one file. */
final class Routes extends RouteServiceProvider
{
    /** What a request changes and the next one must not see. */
    public static int $static = 0;

    public function boot(): void
    {
        $this->routes(static function (): void {
            Route::middleware('web')->group(static function (): void {
                Route::get('/', static fn (Request $request) => response()->json([
                    'env' => app()->environment(),
                    'debug' => config('app.debug'),
                    'greeting' => env('GREETING'),
                    'in_server' => $_SERVER['GREETING'] ?? null,
                    'script' => $request->server('SCRIPT_NAME'),
                    'query' => $request->query(),
                    'url' => url('/x'),
                    'token' => csrf_token(),
                    'session' => array_keys(session()->all()),
                    'static' => ++self::$static,
                    'property' => ++app('marks')->n,
                    'rows' => Note::count(),
                    'event' => tap(new Note())->save()->seen,
                    'project' => getenv('HAYATE_PROJECT'),
                    'pid' => getmypid(),
                ]));
                Route::get('/visit', static function (Request $request) {
                    $request->session()->put('visits', $visits = $request->session()->get('visits', 0) + 1);

                    return "visit $visits";
                });
                Route::get('/exit', static function (): void {
                    exit('left early');
                });
                Route::get('/exhaust', static fn () => str_repeat('x', 1 << 30));
                Route::get('/fail', static function (): void {
                    throw new \DomainException('a failure of the tests');
                });
            });
        });
    }
}
