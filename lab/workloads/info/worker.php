<?php
/* The same application, from a worker that stays: the kernel boots once. */

declare(strict_types=1);

use App\Kernel;
use Symfony\Component\HttpFoundation\Request;

require __DIR__.'/vendor/autoload.php';

$kernel = new Kernel('prod', false);
$kernel->boot();
$handler = static function () use ($kernel): void {
    $request = Request::createFromGlobals();
    $response = $kernel->handle($request);
    $response->send();
    $kernel->terminate($request, $response);
};
while (hayate_handle_request($handler)) {
    // Resets the services that keep something of a request, now rather than while the next client waits.
    $kernel->boot();
}
