<?php

/** As runtimes for FrankenPHP run a kernel: what the process has been given is added to each request, work after the answer, a limit of loops. */

declare(strict_types=1);

ignore_user_abort(true);

require __DIR__.'/application.php';

$application = new Application();
$given = array_filter($_SERVER, static fn (string $key): bool => !str_starts_with($key, 'HTTP_'), ARRAY_FILTER_USE_KEY);
$given['APP_RUNTIME_MODE'] = 'web=1&worker=1';
$request = $response = null;
$handler = static function () use ($application, $given, &$request, &$response): void {
    $_SERVER += $given;
    $request = $_GET;
    $response = $application->handle($request);
    echo $response;
};
$most = (int) ($_SERVER['FRANKENPHP_LOOP_MAX'] ?? 500);
$loops = 0;
do {
    $goes = \frankenphp_handle_request($handler);
    if (null !== $request && null !== $response) {
        $application->terminate($request);
        $request = $response = null;
    }
    gc_collect_cycles();
} while ($goes && (-1 === $most || ++$loops < $most));
