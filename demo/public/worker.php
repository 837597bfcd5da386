<?php

/**
 * The same application as a worker: it boots once, then answers one request after the other.
 *
 *     hayate serve demo --worker public/worker.php
 */

declare(strict_types=1);

use Windbook\Application;
use Windbook\Mode;

// A visitor asked for this file as if it were a page (it lies below the document root): answer as the front controller would.
if (isset($_SERVER['REQUEST_METHOD'])) {
    require __DIR__ . '/index.php';

    return;
}

require __DIR__ . '/../src/autoload.php';

if (!function_exists('hayate_handle_request')) {
    fwrite(STDERR, "worker.php needs Hayate: hayate serve demo --worker public/worker.php\n");
    exit(1);
}

$application = Application::boot(dirname(__DIR__), Mode::Worker);
$handler = static function () use ($application): void {
    $application->handle();
    if (isset($_SERVER['HAYATE_WARMUP'])) {
        // Not a visitor: Hayate warms the application up, then takes the snapshot that each request starts from.
        $application->release();
    }
};

while (hayate_handle_request($handler)) {
}
