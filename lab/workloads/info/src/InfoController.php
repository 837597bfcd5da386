<?php

declare(strict_types=1);

namespace App;

use Symfony\Component\HttpFoundation\JsonResponse;

/** The one route: where the application runs, and that each answer is made anew. */
final class InfoController
{
    public function __construct(private readonly string $environment, private readonly string $service)
    {
    }

    public function info(): JsonResponse
    {
        return new JsonResponse([
            'env' => $this->environment,
            'service' => $this->service,
            'pid' => getmypid(),
            'random' => random_int(0, PHP_INT_MAX >> 10),
            'php' => [
                'sapi' => PHP_SAPI,
                'memory_limit' => \ini_get('memory_limit'),
                'opcache' => \ini_get('opcache.enable'),
                'realpath_cache_size' => \ini_get('realpath_cache_size'),
                'max_execution_time' => \ini_get('max_execution_time'),
            ],
        ]);
    }
}
