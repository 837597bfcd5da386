<?php

namespace App\Http\Controllers;

use App\Models\Note;
use Illuminate\Http\JsonResponse;
use Illuminate\Http\Request;
use Illuminate\Routing\Controller;

class HomeController extends Controller
{
    /** What a request changes and the next one must not see. */
    private static int $static = 0;

    public function __invoke(Request $request): JsonResponse
    {
        return response()->json([
            'env' => app()->environment(),
            'debug' => config('app.debug'),
            'greeting' => env('GREETING'),
            'in_server' => $_SERVER['GREETING'] ?? null,
            'script' => $request->server('SCRIPT_NAME'),
            'query' => $request->query(),
            'url' => url('/visit'),
            'token' => csrf_token(),
            'session' => array_keys(session()->all()),
            'static' => ++self::$static,
            'property' => ++app('marks')->n,
            'rows' => Note::count(),
            'event' => tap(new Note())->save()->seen,
            'project' => getenv('HAYATE_PROJECT'),
            'pid' => getmypid(),
        ]);
    }
}
