<?php

/**
 * Boots a Symfony application and then handles its requests; the worker script for projects that `hayate serve` recognises.
 *
 * The project's own public/index.php is run where it is written for symfony/runtime: it says which kernel to make. Without
 * symfony/runtime this script does what Symfony's front controller does: autoloader, .env, App\Kernel.
 *
 * It relies on rewinding: what one request leaves in the kernel, no other sees. Only the warm-up requests are handled in a
 * process that goes on; each of them gets a kernel and a container of its own, which are thrown away with all they left in
 * them. What stays is what belongs to no visitor: loaded classes, compiled code, statics.
 * It is for production. In debug mode Symfony rebuilds its container when the code changes, which classic mode shows at once.
 */

declare(strict_types=1);

namespace Hayate\Boot;

use Symfony\Component\Dotenv\Dotenv;
use Symfony\Component\ErrorHandler\ErrorHandler;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpKernel\HttpKernelInterface;
use Symfony\Component\HttpKernel\KernelInterface;
use Symfony\Component\HttpKernel\TerminableInterface;

unset($_SERVER['HAYATE_PROJECT'], $_ENV['HAYATE_PROJECT']);
/** What the process was given, before .env adds to it. */
$given = ['server' => $_SERVER, 'env' => $_ENV];

/** Handles requests until the worker is to leave. */
$serve = static function (HttpKernelInterface $kernel) use ($given): void {
    // A cache around the kernel (HttpCache) boots it with the first request.
    if ($kernel instanceof KernelInterface) {
        $kernel->boot();
        if ($kernel->isDebug()) {
            error_log('Symfony is in debug mode: changes of the code are seen after `hayate reload` only; --mode classic shows them at once');
        }
    }
    // Each request brings superglobals of its own; what .env has added is to stay in them, as under php-fpm.
    $server = array_diff_key($_SERVER, $given['server']);
    $env = array_diff_key($_ENV, $given['env']);
    $fatal = class_exists(ErrorHandler::class, false) ? [ErrorHandler::class, 'handleFatalError'] : null;
    // A clone has no container; boot() makes one.
    $fresh = $kernel instanceof KernelInterface ? clone $kernel : $kernel;
    $warmed = false;

    $handler = static function () use (&$kernel, &$warmed, $server, $env, $fatal): void {
        $warmed = isset($_SERVER['HAYATE_WARMUP']);
        $_SERVER += $server;
        $_ENV += $env;
        if (null !== $fatal) {
            // What the boot registered is for its own end; a fatal error of a request gets Symfony's error page, too.
            register_shutdown_function($fatal);
        }
        $request = Request::createFromGlobals();
        $response = $kernel->handle($request);
        $response->send();
        if ($kernel instanceof TerminableInterface) {
            $kernel->terminate($request, $response);
        }
    };

    while (hayate_handle_request($handler)) {
        if ($warmed) {
            $kernel = clone $fresh;
            if ($kernel instanceof KernelInterface) {
                $kernel->boot();
            }
        }
    }
};

$root = (string) getenv('HAYATE_PROJECT');
putenv('HAYATE_PROJECT');
$front = $root.'/public/index.php';
// Where PHP would be if it ran the front controller.
chdir($root.'/public');
// symfony/runtime would read its options from them.
unset($_SERVER['argv'], $_SERVER['argc']);

if (str_contains((string) file_get_contents($front), 'autoload_runtime.php')) {
    // autoload_runtime.php runs the front controller, makes the runtime that this variable names, and hands it the kernel.
    $_SERVER['SCRIPT_FILENAME'] = $front;
    $_SERVER['APP_RUNTIME'] = SymfonyRuntime::class;
    spl_autoload_register(static function (string $class) use ($serve): void {
        if (SymfonyRuntime::class === $class) {
            require __DIR__.'/symfony_runtime.php';
            SymfonyRuntime::$serve = $serve;
        }
    });
    require $root.'/vendor/autoload_runtime.php';

    return;
}

require $root.'/vendor/autoload.php';
if (class_exists(Dotenv::class) && (is_file($root.'/.env') || is_file($root.'/.env.local.php'))) {
    (new Dotenv())->bootEnv($root.'/.env');
}
$serve(new \App\Kernel((string) ($_SERVER['APP_ENV'] ?? 'prod'), (bool) ($_SERVER['APP_DEBUG'] ?? false)));
