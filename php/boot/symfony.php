<?php

/**
 * Boots a Symfony application and then handles its requests; the worker script for projects that `hayate serve` recognises.
 *
 * The project's own public/index.php is run where it is written for symfony/runtime: it says which kernel to make. Without
 * symfony/runtime this script does what the project's front controller does: autoloader, .env where it reads that, App\Kernel.
 *
 * It relies on rewinding: what one request leaves in the kernel, no other sees. Warm-up requests are handled by processes of
 * their own, which end with them (host/learn.c). They show which services of Symfony's own are needed, see SymfonyServices.
 * It is for production. In debug mode Symfony rebuilds its container when the code changes, which classic mode shows at once.
 */

declare(strict_types=1);

namespace Hayate\Boot;

use Symfony\Component\Dotenv\Dotenv;
use Symfony\Component\ErrorHandler\ErrorHandler;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpKernel\HttpCache\HttpCache;
use Symfony\Component\HttpKernel\HttpKernelInterface;
use Symfony\Component\HttpKernel\KernelInterface;
use Symfony\Component\HttpKernel\TerminableInterface;
use Symfony\Component\Routing\Router;

require __DIR__.'/environment.php';
require __DIR__.'/symfony_classes.php';
require __DIR__.'/symfony_connection.php';
require __DIR__.'/symfony_env.php';
require __DIR__.'/symfony_services.php';

unset($_SERVER['HAYATE_PROJECT'], $_ENV['HAYATE_PROJECT']);

/** As configured, whoever set it. */
function trusted_proxies(KernelInterface $kernel): string
{
    $container = $kernel->getContainer();
    $proxies = $container->hasParameter('kernel.trusted_proxies') ? $container->getParameter('kernel.trusted_proxies') : '';

    return \is_array($proxies) ? implode(',', $proxies) : (string) $proxies;
}

/**
 * Handles requests until the worker is to leave.
 *
 * @param array{server: array<string, mixed>, env: array<string, mixed>} $given what the process was given, before .env adds to it
 */
function serve(HttpKernelInterface $kernel, array $given): void
{
    $inner = $kernel instanceof HttpCache ? $kernel->getKernel() : $kernel;
    $container = null;
    if ($inner instanceof KernelInterface) {
        $of = (new \ReflectionMethod($inner, 'handle'))->class;
        if (!str_starts_with($of, 'Symfony\\')) {
            not_for_all("$of::handle() runs before the kernel boots, for each request. To avoid it: listen to kernel.request");
        }
        $inner->boot();
        $container = $inner->getContainer();
        generated(SymfonyClasses::directory($inner));
        if ([] !== $asked = SymfonyEnv::ofRequests($container)) {
            not_for_all('it resolves '.implode(', ', $asked).' as it boots, which may be another value for each request. To avoid it: '
                .(SymfonyEnv::asksForTrusted($container) ? 'set framework.trusted_hosts, .trusted_proxies and .trust_x_sendfile_type_header (without them Symfony asks for SYMFONY_TRUSTED_HOSTS and so on), and '
                    : '').'use that in services alone, or read it from the request');
        } else {
            // What no request does without, and what holds nothing of one when it is made, unless the application has a part in
            // it. Not more: the constructor of an application's own service may look for the request.
            $ahead = static function () use ($container): bool {
                $container->get('http_kernel');
                $router = $container->has('router') ? $container->get('router') : null;
                if ($router instanceof Router) {
                    $router->getMatcher();
                    $router->getGenerator();
                }

                return [] === SymfonyEnv::ofRequests($container);
            };
            $tries = static function () use ($ahead): bool {
                $good = false;
                $runs = runs_own_code(static function () use ($ahead, &$good): void {
                    $good = $ahead();
                });

                return $good && !$runs;
            };
            if ([] !== came_back($tries, 1, 5)) {
                $ahead();
            }
        }
        look_at_all_environment('/DependencyInjection/EnvVarProcessor.php'); // see SymfonyEnv
    }
    if (!$inner instanceof KernelInterface) {
        not_for_all('its public/index.php returns a '.get_debug_type($inner).', and what it asks as it boots is not known. To avoid it: return the kernel');
    } elseif (str_contains(trusted_proxies($inner), 'REMOTE_ADDR')) {
        not_for_all('framework.trusted_proxies names REMOTE_ADDR, which Symfony looks up once, as it boots. To avoid it: name the addresses of the proxies, or leave that to trusted_proxies of hayate.toml');
    }
    if ($inner instanceof KernelInterface && $inner->isDebug()) {
        error_log('Symfony is in debug mode: changes of the code are seen after `hayate reload` only; --mode classic shows them at once');
    }
    // Each request brings superglobals of its own; what .env has added is to stay in them, as under php-fpm.
    $server = array_diff_key($_SERVER, $given['server']);
    $env = array_diff_key($_ENV, $given['env']);
    $errors = set_exception_handler(null);
    restore_exception_handler();
    $errors = \is_array($errors) && $errors[0] instanceof ErrorHandler ? $errors[0] : null;
    $handleErrors = static function () use ($errors): void {
        if (null !== $errors) {
            // Requests give their loggers and their kernel to the error handler: to one of their own.
            restore_error_handler();
            restore_exception_handler();
            $handler = clone $errors;
            set_error_handler([$handler, 'handleError']);
            set_exception_handler([$handler, 'handleException']);
            // Arms its shutdown function again, which the end of a request disarms.
            ErrorHandler::register(null, false);
        }
    };
    $handleErrors();
    $services = new SymfonyServices();
    $connects = false;
    if (null !== $container) {
        when_learned(static function (bool $warm) use ($inner, $services, $container, &$connects): void {
            if ($warm) {
                SymfonyClasses::load($inner);
            }
            $services->make($container, learned());
            // Whose database it is, a request may say.
            $connects = [] !== came_back(static fn (): bool => null !== SymfonyConnection::find($container), 1, 5);
        });
    }

    $handler = static function () use ($kernel, $inner, $services, $server, $env): void {
        $_SERVER += $server;
        $_ENV += $env;
        $GLOBALS['request'] = $request = Request::createFromGlobals();
        // A kernel that has not booted, as under php-fpm, asks its cache first (framework.http_cache, since Symfony 5.2).
        // Not for requests of Hayate's own, of which something is to be learned.
        $own = isset($_SERVER['HAYATE_WARMUP']) || isset($_SERVER['HAYATE_COMPARISON']);
        $cache = !$own && $kernel === $inner && $inner instanceof KernelInterface && $inner->getContainer()->has('http_cache') ? $inner->getContainer()->get('http_cache') : null;
        $GLOBALS['response'] = $response = ($cache ?? $kernel)->handle($request);
        $response->send();
        // What comes from the cache alone ends there, without the kernel.
        if ($kernel instanceof TerminableInterface && (!$cache instanceof HttpCache || [] !== array_diff(array_merge(...array_values($cache->getTraces())), ['fresh']))) {
            $kernel->terminate($request, $response);
        }
        if (isset($_SERVER['HAYATE_WARMUP']) && $inner instanceof KernelInterface) {
            array_map(learn(...), $services->observe($inner->getContainer()));
        }
    };

    // With connections = "warm": each worker opens Doctrine's default connection, and keeps it.
    hayate_on_worker_start(static function () use ($container, &$connects): void {
        if ($connects && null !== $id = SymfonyConnection::find($container)) {
            SymfonyConnection::open($container, $id);
        }
    });
    while (hayate_handle_request($handler)) {
    }
}

(static function (): void {
    $given = ['server' => $_SERVER, 'env' => $_ENV];
    $serve = static fn (HttpKernelInterface $kernel) => serve($kernel, $given);
    $root = (string) getenv('HAYATE_PROJECT');
    putenv('HAYATE_PROJECT');
    $front = $root.'/public/index.php';
    // Comments in it do nothing.
    $code = php_strip_whitespace($front);
    // Where PHP would be if it ran the front controller.
    chdir($root.'/public');
    // symfony/runtime would read its options from them.
    unset($_SERVER['argv'], $_SERVER['argc']);

    try {
        if (str_contains($code, '/vendor/autoload_runtime.php')) {
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
        } else {
            require $root.'/vendor/autoload.php';
            // These stand in most front controllers, not in all.
            if (str_contains($code, '->bootEnv(')) {
                (new Dotenv())->bootEnv($root.'/.env');
            }
            if (str_contains($code, 'umask(0000)') && ($_SERVER['APP_DEBUG'] ?? false)) {
                umask(0000);
                foreach (['Symfony\\Component\\ErrorHandler\\Debug', 'Symfony\\Component\\Debug\\Debug'] as $debug) {
                    if (str_contains($code, "use $debug;") && class_exists($debug)) {
                        $debug::enable();
                    }
                }
            }
            $GLOBALS['kernel'] = $kernel = new \App\Kernel((string) ($_SERVER['APP_ENV'] ?? 'prod'), (bool) ($_SERVER['APP_DEBUG'] ?? false));
            $serve($kernel);
        }
    } catch (\Throwable $error) {
        // Why a boot has failed is for the server's log; Symfony's handler would show it to a visitor, and there is none.
        set_exception_handler(null);
        throw $error;
    }
})();
