<?php
/* The same application as a function: see lab/workloads/README.md. */

declare(strict_types=1);

use App\Kernel;
use Symfony\Component\HttpFoundation\Request;

require_once __DIR__.'/vendor/autoload.php';

return static function (): Closure {
    $kernel = new Kernel('prod', false);
    $kernel->boot();

    return static function (string $target) use ($kernel): array {
        $request = Request::create($target);
        $response = $kernel->handle($request);
        $kernel->terminate($request, $response);
        $headers = array_map(static fn (array $values): string => end($values), $response->headers->allPreserveCaseWithoutCookies());
        $answer = [$response->getStatusCode(), $headers, $response->getContent()];
        $kernel->boot(); // resets services

        return $answer;
    };
};
