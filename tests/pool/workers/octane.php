<?php

/** As servers of frameworks drive FrankenPHP: a client object, a guard around each request, the limit in the loop's head. */

declare(strict_types=1);

if (!function_exists('frankenphp_handle_request')) {
    exit(1);
}
require __DIR__.'/application.php';

$most = (int) ($_ENV['MAX_REQUESTS'] ?? $_SERVER['MAX_REQUESTS'] ?? 1000);
$application = null;
try {
    $application = new Application();
    $served = 0;
    $handle = static function () use ($application): void {
        $request = $_GET;
        try {
            echo $application->handle($request);
        } catch (Throwable $error) {
            http_response_code(500);
            error_log($error->getMessage());
        } finally {
            $application->terminate($request);
        }
    };
    while ($served < $most && frankenphp_handle_request($handle)) {
        ++$served;
    }
} finally {
    $application?->shutdown();
    gc_collect_cycles();
}
