<?php

declare(strict_types=1);

namespace Hayate\Boot;

use Illuminate\Contracts\Foundation\Application;
use Illuminate\Database\Connection;
use Illuminate\Database\Connectors\ConnectionFactory;
use Illuminate\Database\Connectors\ConnectorInterface;
use Illuminate\Database\Connectors\MariaDbConnector;
use Illuminate\Database\Connectors\MySqlConnector;
use Illuminate\Database\Connectors\PostgresConnector;
use Illuminate\Database\DatabaseManager;
use Illuminate\Database\Eloquent\Model;
use Illuminate\Redis\Connectors\PhpRedisConnector;
use Illuminate\Redis\RedisManager;
use Illuminate\Support\ConfigurationUrlParser;

/**
 * With connections = "warm": what each worker opens for its requests, the default database and Redis for cache and sessions.
 *
 * It is held aside, beneath all that an application can have a part in: where Laravel's own connector would open a
 * connection in a request, it gets one that is open if that was opened of the very same settings. So managers, events,
 * extensions, and what a middleware makes of the configuration are the request's own, and nobody's code but Laravel's
 * connectors runs before. What stands in their place is known by them to be there (app()->bound('db.connector.mysql')).
 */
final class LaravelWarm
{
    /** @var list<array{mixed, \PDO|\Redis}> each with what it was opened of */
    private static array $held = [];
    private static bool $opens = false;

    /** A step each, since one that opens what cannot be kept is left out as a whole. */
    public static function onWorkerStart(Application $app): void
    {
        foreach ([self::database(...), self::redis(...)] as $part) {
            hayate_on_worker_start(static fn (): ?\Throwable => self::open($app, $part));
        }
    }

    /** Opens what can be. Returns what went wrong, if a server may be there later. */
    private static function open(Application $app, \Closure $part): ?\Throwable
    {
        self::$opens = true;
        try {
            $part($app);
        } catch (\PDOException|\RedisException|\ErrorException $error) {
            return $error;
        } catch (\Throwable $error) {
            // It would fail each time.
            error_log('Connections of Laravel that are to be kept (connections = "warm") were not opened, so each request opens its own: '
                .$error::class.': '.$error->getMessage());
        } finally {
            self::$opens = false;
        }

        return null;
    }

    /**
     * What a connector is asked for.
     *
     * @param class-string         $by      whose way to open it is
     * @param array<string, mixed> $config  what it makes it of, as it is in the end: one host, one prefix
     * @param \Closure(): object   $connect
     */
    public static function connect(string $by, array $config, \Closure $connect): object
    {
        $of = [$by, $config, ini_get('default_socket_timeout'), ini_get('mysqlnd.net_read_timeout'), PostgresConnector::class === $by ? environment_of_libpq() : null];
        if (self::$opens) {
            self::$held[] = [$of, $opened = $connect()];

            return $opened;
        }
        foreach (self::$held as $i => [$held, $opened]) {
            if ($held === $of) {
                // Who asks again in the same request wants another session.
                unset(self::$held[$i]);

                return $opened;
            }
        }

        return $connect();
    }

    private static function database(Application $app): void
    {
        $name = config('database.default');
        $config = \is_string($name) ? config("database.connections.$name") : null;
        $config = null === $config ? [] : (new ConfigurationUrlParser())->parseConfiguration($config);
        $connector = self::connector($config['driver'] ?? null);
        // Somebody's own way to connect has its reasons, such as passwords that hold for minutes. And one that the boot has opened is kept already.
        if (null === $connector || !$app->bound('db') || $app->bound($key = "db.connector.{$config['driver']}") || self::boot_opened($name)) {
            return;
        }
        $app->instance($key, $connector);
        $factory = new class($app) extends ConnectionFactory {
            protected function createConnection($driver, $connection, $database, $prefix = '', array $config = [])
            {
                return new Connection($connection); // no class of the application's for this driver
            }
        };
        $connection = $factory->make($config, $name);
        $connection->getPdo();
        if (isset($config['read'])) {
            $connection->getReadPdo();
        }
    }

    private static function connector(?string $driver): ?ConnectorInterface
    {
        return match (true) {
            'mysql' === $driver => new class() extends MySqlConnector {
                public function connect(array $config)
                {
                    return LaravelWarm::connect(parent::class, $config, fn () => parent::connect($config));
                }
            },
            'mariadb' === $driver && class_exists(MariaDbConnector::class) => new class() extends MariaDbConnector {
                public function connect(array $config)
                {
                    return LaravelWarm::connect(parent::class, $config, fn () => parent::connect($config));
                }
            },
            'pgsql' === $driver => new class() extends PostgresConnector {
                public function connect(array $config)
                {
                    return LaravelWarm::connect(parent::class, $config, fn () => parent::connect($config));
                }
            },
            default => null,
        };
    }

    private static function boot_opened(string $name): bool
    {
        $manager = Model::getConnectionResolver();
        $made = $manager instanceof DatabaseManager ? $manager->getConnections()[$name] ?? null : null;

        return $made instanceof Connection && $made->getRawPdo() instanceof \PDO;
    }

    private static function redis(Application $app): void
    {
        $stores = [];
        if ('redis' === config('cache.stores.'.config('cache.default').'.driver')) {
            $stores[] = config('cache.stores.'.config('cache.default').'.connection') ?? 'default';
        }
        if ('redis' === config('session.driver')) {
            $stores[] = config('session.connection') ?? 'default';
        }
        $config = config('database.redis');
        if ([] === $stores || !$app->bound('redis') || !\is_array($config) || 'phpredis' !== ($config['client'] ?? 'phpredis')) {
            return;
        }
        $connector = new class() extends PhpRedisConnector {
            protected function createClient(array $config)
            {
                return LaravelWarm::connect(parent::class, $config, fn () => parent::createClient($config));
            }
        };
        $creators = new \ReflectionProperty(RedisManager::class, 'customCreators');
        $give = static function (mixed $manager) use ($connector, $creators): mixed {
            // A manager of another class, and a connector that somebody has given to it, stay what they are.
            if (\is_object($manager) && RedisManager::class === $manager::class && !isset($creators->getValue($manager)['phpredis'])) {
                $manager->extend('phpredis', fn () => $connector); // it is bound to the manager
            }

            return $manager;
        };
        $made = $app->resolved('redis') ? $app->make('redis') : null;
        // Of the boot, with the configuration of then.
        $opened = $made instanceof RedisManager ? array_keys((array) $made->connections()) : [];
        $manager = $give(new RedisManager($app, 'phpredis', array_diff_key($config, ['client' => true])));
        $failed = null;
        foreach (array_diff(array_unique($stores), $opened) as $store) {
            try {
                // One on which nothing was said is not known to be Redis.
                $manager->connection($store)->client()->ping();
            } catch (\RedisException|\ErrorException $error) {
                $failed ??= $error;
            }
        }
        null !== $made ? $give($made) : $app->extend('redis', $give);
        if (null !== $failed) {
            throw $failed;
        }
    }
}
