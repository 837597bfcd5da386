<?php

/**
 * Boots a Laravel application and then handles its requests; the worker script for projects that `hayate serve` recognises.
 *
 * It does what public/index.php of Laravel 8 to 13 does, cut in two: up to the booted providers once, the rest for each
 * request. It relies on rewinding: what one request leaves in the container, no other sees.
 *
 * Warm-up requests are handled by processes of their own, which end with them: nothing of what they leave is in the
 * application that everybody meets. What the host learns from them is which classes they load, and what their functions
 * look up (host/learn.c).
 * With connections = "warm" each worker opens the default database, and Redis where cache or sessions are in it
 * (laravel_warm.php).
 *
 * Providers boot before there is a request. They see one like that of Laravel's console, made from the setting app.url; who
 * asks it anything has the application served in classic mode (laravel_request.php).
 */

declare(strict_types=1);

use Illuminate\Contracts\Http\Kernel;
use Illuminate\Http\Request;

use Hayate\Boot\EarlyRequest;
use Hayate\Boot\LaravelWarm;
use function Hayate\Boot\enter;
use function Hayate\Boot\look_at_all_environment;
use function Hayate\Boot\not_for_all;
use function Hayate\Boot\set_variable;
use function Hayate\Boot\variable;
use const Hayate\Boot\AS_OF_REQUEST;

define('LARAVEL_START', microtime(true));
\Hayate\Boot\began('LARAVEL_START');

require __DIR__.'/environment.php';
require __DIR__.'/laravel_request.php';
require __DIR__.'/laravel_warm.php';

(static function (): void {
    $root = variable('HAYATE_PROJECT');
    set_variable('HAYATE_PROJECT');
    unset($_SERVER['HAYATE_PROJECT'], $_ENV['HAYATE_PROJECT']);
    // Where PHP would be if it ran the front controller.
    enter($root.'/public');
    $given = ['server' => $_SERVER, 'env' => $_ENV];
    require $root.'/vendor/autoload.php';

    try {
        $app = require $root.'/bootstrap/app.php';
        EarlyRequest::give($app);
        $kernel = $app->make(Kernel::class);
        foreach (['handle', 'sendRequestThroughRouter'] as $method) {
            $of = (new ReflectionMethod($kernel, $method))->class;
            if (!str_starts_with($of, 'Illuminate\\')) {
                not_for_all("$of::$method() runs before the application boots, for each request. To avoid it: do what it does in a middleware");
            }
        }
        $kernel->bootstrap();
        // Its kernel does so for each request: it is nothing that one of them leaves.
        Request::enableHttpMethodParameterOverride();
        EarlyRequest::take();
        look_at_all_environment();
    } catch (Throwable $error) {
        // Why a boot has failed is for the server's log; Laravel's handler would show it to a visitor, and there is none.
        set_exception_handler(null);
        throw $error;
    }
    // Variables of the front controller are global there.
    $GLOBALS['app'] = $app;
    $GLOBALS['kernel'] = $kernel;
    if (filter_var(config('app.debug'), FILTER_VALIDATE_BOOLEAN)) {
        error_log('Laravel is in debug mode: changes of the code are seen after `hayate reload` only; --mode classic shows them at once');
    }
    // Each request brings superglobals of its own; what .env has added is to come into them, as under php-fpm: once there
    // is a request, so that HTTPS or HTTP_… of .env is not the visitor's.
    $server = array_diff_key($_SERVER, $given['server']);
    $env = array_diff_key($_ENV, $given['env']);
    $as_of_request = array_filter($server, static fn (mixed $value, string $name): bool => \is_string($value)
        && 1 === preg_match(AS_OF_REQUEST, $name), ARRAY_FILTER_USE_BOTH);
    $others = array_diff_key($server, $as_of_request);
    // PHP takes those for its own otherwise, as it makes $_SERVER.
    array_map(set_variable(...), array_map(strval(...), array_keys($as_of_request)));
    // Written by `artisan down`: it answers and exits, or lets those through who may pass. Where the front controller has it.
    $maintenance = str_contains(php_strip_whitespace($root.'/public/index.php'), 'maintenance.php') ? $root.'/storage/framework/maintenance.php' : '';

    $handler = static function () use ($kernel, $server, $env, $others, $as_of_request, $maintenance): void {
        if ('' !== $maintenance && is_file($maintenance)) {
            require $maintenance;
        }
        $_SERVER = array_diff_key($_SERVER, $others);
        $GLOBALS['request'] = $request = Request::capture();
        foreach ($as_of_request as $name => $value) {
            if (!isset($_SERVER[$name])) {
                set_variable("$name=$value");
            }
        }
        // What the request has, it keeps.
        $_ENV += array_diff_key($env, $_SERVER);
        $_SERVER += $server;
        $GLOBALS['response'] = $response = $kernel->handle($request);
        $response->send();
        $kernel->terminate($request, $response);
    };

    // With connections = "warm": each worker opens what nearly all requests ask, and keeps it.
    LaravelWarm::onWorkerStart($app);
    while (hayate_handle_request($handler)) {
    }
})();
