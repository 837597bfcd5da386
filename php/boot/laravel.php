<?php

/**
 * Boots a Laravel application and then handles its requests; the worker script for projects that `hayate serve` recognises.
 *
 * It does what public/index.php of Laravel 8 to 13 does, cut in two: up to the booted providers once, the rest for each
 * request. It relies on rewinding: what one request leaves in the container, no other sees.
 *
 * Warm-up requests are handled in a process that goes on, so they get an application of their own, which is thrown away
 * with all they left in it, connections included: a session's contents or a logged-in user must not be in the application
 * that everybody meets. What stays of them is loaded classes and compiled code; what is static the host puts back, or
 * boots again without them (host/own_state.c).
 * With connections = "warm" each worker opens the default database, and Redis where cache or sessions are in it.
 *
 * Providers boot before there is a request. They see one like that of Laravel's console, made from the setting app.url; who
 * asks it anything has the application served in classic mode (laravel_request.php).
 */

declare(strict_types=1);

use Illuminate\Contracts\Foundation\Application;
use Illuminate\Contracts\Http\Kernel;
use Illuminate\Http\Request;

use Hayate\Boot\EarlyRequest;
use function Hayate\Boot\look_at_all_environment;
use const Hayate\Boot\AS_OF_REQUEST;
use const Hayate\Boot\LARAVEL_CLASSES;

define('LARAVEL_START', microtime(true));

require __DIR__.'/environment.php';
require __DIR__.'/laravel_request.php';

(static function (): void {
    $root = (string) getenv('HAYATE_PROJECT');
    putenv('HAYATE_PROJECT');
    unset($_SERVER['HAYATE_PROJECT'], $_ENV['HAYATE_PROJECT']);
    // Where PHP would be if it ran the front controller.
    chdir($root.'/public');
    $given = ['server' => $_SERVER, 'env' => $_ENV];
    require $root.'/vendor/autoload.php';

    $boot = static function () use ($root): Kernel {
        $app = require $root.'/bootstrap/app.php';
        EarlyRequest::give($app);
        $kernel = $app->make(Kernel::class);
        $kernel->bootstrap();
        // Its kernel does so for each request: it is nothing that one of them leaves.
        Request::enableHttpMethodParameterOverride();
        // Services that hardly any request does without, and that hold nothing of one when they are made, nor of the
        // configuration, which a middleware may change: what makes a tenant of a host does.
        foreach (['auth', 'cache', 'db', 'files', 'hash', 'log', 'router', 'session'] as $service) {
            try {
                if ($app->bound($service)) {
                    $app->make($service);
                }
            } catch (Throwable) {
                // Then it fails in the request that needs it, which says so in Laravel's own way.
            }
        }
        // Of those that read the configuration as they are made there are the classes.
        foreach (LARAVEL_CLASSES as $class) {
            class_exists("Illuminate\\$class");
        }
        EarlyRequest::take();
        look_at_all_environment();

        return $kernel;
    };

    // A connection is to be closed now, even if something static still holds it.
    $close = static function (Application $app): void {
        foreach (['db' => 'getConnections', 'redis' => 'connections'] as $service => $connections) {
            if ($app->resolved($service)) {
                foreach ($app->make($service)->$connections() ?? [] as $name => $_) {
                    $app->make($service)->purge($name);
                }
            }
        }
        // Its error handlers hold the application.
        restore_error_handler();
        restore_exception_handler();
    };

    try {
        $kernel = $boot();
    } catch (Throwable $error) {
        // Why a boot has failed is for the server's log; Laravel's handler would show it to a visitor, and there is none.
        set_exception_handler(null);
        throw $error;
    }
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
    $hide = static function () use ($as_of_request): void {
        array_map(putenv(...), array_map(strval(...), array_keys($as_of_request)));
    };
    $hide();
    $booted = ['server' => $_SERVER, 'env' => $_ENV];
    // Written by `artisan down`: it answers and exits, or lets those through who may pass. Where the front controller has it.
    $maintenance = str_contains(php_strip_whitespace($root.'/public/index.php'), 'maintenance.php') ? $root.'/storage/framework/maintenance.php' : '';
    $warmed = false;

    $handler = static function () use (&$kernel, &$warmed, $server, $env, $others, $as_of_request, $maintenance): void {
        $warmed = isset($_SERVER['HAYATE_WARMUP']);
        if ('' !== $maintenance && is_file($maintenance)) {
            require $maintenance;
        }
        $_SERVER = array_diff_key($_SERVER, $others);
        $request = Request::capture();
        foreach ($as_of_request as $name => $value) {
            if (!isset($_SERVER[$name])) {
                putenv("$name=$value");
            }
        }
        // What the request has, it keeps.
        $_ENV += array_diff_key($env, $_SERVER);
        $_SERVER += $server;
        $response = $kernel->handle($request);
        $response->send();
        $kernel->terminate($request, $response);
    };

    // With connections = "warm": each worker opens what nearly all requests ask, and keeps it.
    hayate_on_worker_start(static function () use (&$kernel): void {
        $app = $kernel->getApplication();
        $database = config('database.connections.'.config('database.default').'.driver');
        if ($app->bound('db') && in_array($database, ['mysql', 'mariadb', 'pgsql'], true)) {
            $app->make('db')->connection()->select('select 1');
        }
        $stores = [];
        if ('redis' === config('cache.stores.'.config('cache.default').'.driver')) {
            $stores[] = config('cache.stores.'.config('cache.default').'.connection') ?? 'default';
        }
        if ('redis' === config('session.driver')) {
            $stores[] = config('session.connection') ?? 'default';
        }
        if ($app->bound('redis') && 'phpredis' === config('database.redis.client', 'phpredis')) {
            foreach (array_unique($stores) as $store) {
                $app->make('redis')->connection($store)->ping();
            }
        }
    });
    while (hayate_handle_request($handler)) {
        if ($warmed) {
            try {
                $close($kernel->getApplication());
                // What is booted for all visitors is not booted for the warm-up request.
                [$_SERVER, $_ENV] = [$booted['server'], $booted['env']];
                $_GET = $_POST = $_COOKIE = $_FILES = $_REQUEST = [];
                $kernel = $boot();
                $hide();
            } catch (Throwable $error) {
                set_exception_handler(null);
                throw new RuntimeException('The application does not boot a second time in one process, as it has to after a warm-up request; warmup = [] does without', 0, $error);
            }
            gc_collect_cycles();
        }
    }
})();
