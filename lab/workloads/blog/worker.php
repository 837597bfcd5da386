<?php
/* The same application, from a worker that stays: Laravel boots once. The database is connected to by the first request. */

declare(strict_types=1);

use Illuminate\Contracts\Http\Kernel;
use Illuminate\Http\Request;

require __DIR__.'/vendor/autoload.php';

$app = require __DIR__.'/bootstrap/app.php';
$app->instance('request', Request::create('http://localhost'));
$kernel = $app->make(Kernel::class);
$kernel->bootstrap();
$handler = static function () use ($app, $kernel): void {
    $request = Request::capture();
    $response = $kernel->handle($request)->send();
    $kernel->terminate($request, $response);
    if (isset($_SERVER['HAYATE_WARMUP'])) {
        // No visitor: a snapshot follows, and processes cannot share a connection.
        $app->make('db')->purge();
    }
};
while (hayate_handle_request($handler)) {
    /* until the server wants this worker to end */
}
