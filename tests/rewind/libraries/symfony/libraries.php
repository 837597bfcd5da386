<?php

declare(strict_types=1);

namespace Symfony\Component\DependencyInjection\Loader\Configurator;

return static function (ContainerConfigurator $container): void {
    $container->extension('framework', [
        'lock' => ['default' => ['flock'], 'redis' => [env('REDIS_DSN')]],
        'http_client' => ['enabled' => true],
        'mailer' => ['dsn' => env('MAILER_DSN')],
        'messenger' => [
            'transports' => ['waiting' => ['dsn' => env('REDIS_DSN'), 'options' => ['stream' => 'symfony_messages', 'lazy' => true]]],
            'routing' => [\App\Told::class => 'waiting'],
        ],
        'cache' => [
            'pools' => [
                'tagged.pool' => ['adapter' => 'cache.adapter.filesystem', 'tags' => true],
                'redis.pool' => ['adapter' => 'cache.adapter.redis', 'provider' => env('REDIS_DSN')],
            ],
        ],
    ]);
};
