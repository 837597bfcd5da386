<?php

/**
 * The same application as a worker: it boots once, then answers one request after the other.
 *
 *     hayate serve . --worker public/worker.php
 *
 * What a request changes in the application has to be gone before the next one: see App\Worker.
 */

declare(strict_types=1);

require dirname(__DIR__).'/vendor/autoload.php';

$worker = new App\Worker(require dirname(__DIR__).'/bootstrap/app.php');

while (hayate_handle_request($worker->handle(...))) {
    $worker->reset();
}
