<?php

declare(strict_types=1);

namespace Symfony\Component\DependencyInjection\Loader\Configurator;

use App\Registry;
use App\Told;
use Doctrine\DBAL\Connection;
use Doctrine\DBAL\DriverManager;
use Monolog\Handler\BufferHandler;
use Monolog\Handler\StreamHandler;
use Monolog\Logger;
use Psr\Log\LoggerInterface;
use Symfony\Component\Messenger\Bridge\Doctrine\Transport\DoctrineTransportFactory;

return static function (ContainerConfigurator $container): void {
    $container->extension('framework', [
        'lock' => ['default' => ['flock://'.env('OUT')], 'redis' => [env('REDIS_DSN')]],
        'http_client' => ['enabled' => true],
        'mailer' => ['dsn' => env('MAILER_DSN')],
        'messenger' => [
            'transports' => [
                'waiting' => ['dsn' => env('REDIS_DSN'), 'options' => ['stream' => 'symfony_messages', 'lazy' => true]],
                'stored' => ['dsn' => 'doctrine://default', 'options' => ['table_name' => 'messages']],
            ],
            'routing' => [Told::class => ['waiting', 'stored']],
        ],
        'cache' => [
            'pools' => [
                'tagged.pool' => ['adapter' => 'cache.adapter.filesystem', 'tags' => true],
                'redis.pool' => ['adapter' => 'cache.adapter.redis', 'provider' => env('REDIS_DSN')],
                'database.pool' => ['adapter' => 'cache.adapter.doctrine_dbal', 'provider' => 'database_connection'],
            ],
        ],
    ]);
    $services = $container->services();
    // What DoctrineBundle would configure.
    $container->parameters()->set('doctrine.connections', ['default' => 'doctrine.dbal.default_connection'])->set('doctrine.default_connection', 'default');
    $services->set('doctrine.dbal.default_connection', Connection::class)->public()->factory([DriverManager::class, 'getConnection'])->args([[
        'driver' => 'pdo_mysql', 'unix_socket' => env('MARIADB'), 'user' => 'hayate', 'password' => 'hayate', 'dbname' => 'hayate', 'charset' => 'utf8mb4',
    ]]);
    $services->alias('database_connection', 'doctrine.dbal.default_connection');
    $services->alias(Connection::class, 'database_connection');
    $services->alias('doctrine', Registry::class)->public();
    $services->set(DoctrineTransportFactory::class)->args([service('doctrine')])->tag('messenger.transport_factory');
    // And MonologBundle.
    $services->set('kept_log', Logger::class)->args(['kept', [
        inline_service(BufferHandler::class)->args([inline_service(StreamHandler::class)->args([env('OUT').'/symfony_buffered.log'])]),
    ]]);
    $services->alias(LoggerInterface::class.' $keptLog', 'kept_log');
};
