<?php
/* The same application as a function: see lab/workloads/README.md. */

declare(strict_types=1);

use Illuminate\Contracts\Http\Kernel;
use Illuminate\Http\Request;

require_once __DIR__.'/vendor/autoload.php';

return static function (): Closure {
    $app = require __DIR__.'/bootstrap/app.php';
    $app->instance('request', Request::create('http://localhost'));
    $kernel = $app->make(Kernel::class);
    $kernel->bootstrap();

    return static function (string $target) use ($kernel): array {
        $request = Request::create($target);
        $response = $kernel->handle($request);
        $kernel->terminate($request, $response);
        $headers = array_map(static fn (array $values): string => end($values), $response->headers->allPreserveCaseWithoutCookies());

        return [$response->getStatusCode(), $headers, $response->getContent()];
    };
};
