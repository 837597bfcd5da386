<?php

/**
 * The same application as a worker: the kernel boots once, then answers one request after the other.
 *
 *     hayate serve . --worker public/worker.php
 */

declare(strict_types=1);

use App\Kernel;
use Symfony\Component\HttpFoundation\Request;

require dirname(__DIR__).'/vendor/autoload.php';

$boot = static function (): Kernel {
    $kernel = new Kernel($_SERVER['APP_ENV'] ?? 'prod', (bool) ($_SERVER['APP_DEBUG'] ?? false));
    $kernel->boot();

    return $kernel;
};

$kernel = $boot();
$finished = false;
$handler = static function () use (&$kernel, &$finished): void {
    $finished = false;
    $request = Request::createFromGlobals();
    $response = $kernel->handle($request);
    $response->send();
    $kernel->terminate($request, $response);
    $finished = true;
};

while (hayate_handle_request($handler)) {
    if ($finished) {
        // Resets every service that is tagged kernel.reset, now rather than while the next visitor waits.
        $kernel->boot();
    } else {
        // exit() or an exception cut the request off inside the kernel, which still believes to be in it: a new one.
        $kernel = $boot();
    }
}

$kernel->shutdown();
