<?php

/*
 * More than the application of the tests has: queues, stores, channels. Merged into its configuration, file by file. With
 * SERVERS its database is MariaDB, its cache and sessions are in Redis: "instead" of what it has.
 */

$out = getenv('OUT');
$redis = ['client' => 'phpredis', 'options' => ['prefix' => ''], 'default' => ['host' => getenv('REDIS'), 'port' => 0, 'database' => 0]];

return [
    'app' => ['providers' => [
        Illuminate\Redis\RedisServiceProvider::class,
        Illuminate\Mail\MailServiceProvider::class,
    ]],
    'database' => ['redis' => $redis + ['cache' => $redis['default']]],
    'queue' => ['connections' => [
        'database' => ['driver' => 'database', 'table' => 'jobs', 'queue' => 'default', 'retry_after' => 90],
        'redis' => ['driver' => 'redis', 'connection' => 'default', 'queue' => 'laravel', 'retry_after' => 90],
    ]],
    'cache' => ['stores' => [
        'redis' => ['driver' => 'redis', 'connection' => 'cache'],
        'apc' => ['driver' => 'apc'],
        'database' => ['driver' => 'database', 'table' => 'cache', 'connection' => null],
    ]],
    'mail' => ['default' => 'smtp', 'mailers' => ['smtp' => ['transport' => 'smtp', 'host' => '127.0.0.1', 'port' => (int) getenv('SMTP')]], 'from' => ['address' => 'a@example.org', 'name' => 'A']],
    'logging' => ['channels' => [
        'plain' => ['driver' => 'single', 'path' => "$out/laravel_plain.log"],
        'crossed' => ['driver' => 'custom', 'via' => App\Channels::class, 'kind' => 'crossed'],
        'buffered' => ['driver' => 'custom', 'via' => App\Channels::class, 'kind' => 'buffered'],
    ]],
    'instead' => getenv('SERVERS') ? [
        'database' => ['default' => 'mysql', 'connections' => ['mysql' => [
            'driver' => 'mysql',
            'unix_socket' => getenv('MARIADB'),
            'host' => '',
            'database' => 'hayate',
            'username' => 'hayate',
            'password' => 'hayate',
            'charset' => 'utf8mb4',
            'collation' => 'utf8mb4_unicode_ci',
            'prefix' => '',
            'strict' => true,
        ]]],
        'cache' => ['default' => 'redis'],
        'session' => ['driver' => 'redis'],
    ] : [],
];
