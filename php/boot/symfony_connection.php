<?php

declare(strict_types=1);

namespace Hayate\Boot;

use Doctrine\DBAL\Connection;
use Doctrine\DBAL\Driver;
use Doctrine\DBAL\Driver\Connection as Session;
use Doctrine\DBAL\Driver\Middleware\AbstractDriverMiddleware;
use Symfony\Component\DependencyInjection\Argument\ServiceLocator;
use Symfony\Component\DependencyInjection\Container;
use Symfony\Component\DependencyInjection\ContainerInterface;

/**
 * With connections = "warm": Doctrine's default connection, which each worker makes and opens before its requests.
 *
 * Only where nobody's code but Doctrine's and its bundle's makes it, by what the container says and by what it leads to: a
 * factory, a middleware or a class of the application's own may look for the request. What is open is held behind its
 * driver, and a request that connects is given it if it asks for the very same, and the environment gives the same settings as before.
 */
final class SymfonyConnection
{
    /** Whose code looks for no request as a connection is made, and hears of none that is opened. */
    private const TRUSTED = [
        'Doctrine\\DBAL\\', 'Doctrine\\Bundle\\', 'Doctrine\\Common\\EventManager', 'Symfony\\Bridge\\Doctrine\\', 'ArrayObject',
        // Which read the environment; SymfonyEnv knows of whom it asks.
        'Symfony\\Component\\DependencyInjection\\', 'Symfony\\Bundle\\FrameworkBundle\\Secrets\\',
    ];
    private const HEARS = ['Doctrine\\DBAL\\Logging\\', 'Doctrine\\Bundle\\DoctrineBundle\\Middleware\\Debug', 'Symfony\\Bridge\\Doctrine\\Middleware\\Debug\\'];
    private const DRIVERS = ['mysqli', 'pdo_mysql', 'pdo_pgsql', 'pgsql'];

    /** Under what name the container makes it, as DoctrineBundle says; null: it may be another one for each request. Makes it. */
    public static function find(ContainerInterface $container): ?string
    {
        if (!$container instanceof Container || !$container->hasParameter('doctrine.connections') || !$container->hasParameter('doctrine.default_connection')
            || !class_exists(AbstractDriverMiddleware::class)) {
            return null;
        }
        $id = $container->getParameter('doctrine.connections')[$container->getParameter('doctrine.default_connection')] ?? null;
        if (!\is_string($id) || !$container->has($id)) {
            return null;
        }
        $before = self::made($container);
        $asked = SymfonyEnv::ofRequests($container);
        $connection = $container->get($id);
        $made = array_diff_key(self::made($container), $before);
        foreach ($made + self::named($container, self::code($container, $id)) as $one) {
            if ($one !== $container && !self::trusts($one::class) && !$one instanceof ServiceLocator) {
                return null;
            }
        }

        // One that the bundle has opened to learn its server's version is what requests would be given, whatever they say.
        return Connection::class === $connection::class && !$connection->isConnected() && \in_array($connection->getParams()['driver'] ?? null, self::DRIVERS, true)
            && self::is_plain($container, $id) && self::leads_to_trusted($connection, $container)
            && [] === array_diff(SymfonyEnv::ofRequests($container), $asked) ? $id : null;
    }

    public static function open(Container $container, string $id): void
    {
        $connection = $container->get($id);
        $driver = $connection->getDriver();
        preg_match_all('/getEnv\(\'([^\'\\\\]+)\'\)/', self::code($container, $id), $asked);
        $of = self::environment($container, $asked[1]);
        $params = $connection->getParams();
        $session = $driver->connect($params);
        $again = static function () use ($container, $id, $asked, $of): ?Session {
            return $of === self::environment($container, $asked[1]) ? null : self::anew($container, $id);
        };
        $holder = new class($driver, $session, $params, $again) extends AbstractDriverMiddleware {
            public function __construct(Driver $driver, private ?Session $held, private array $of, private \Closure $again)
            {
                parent::__construct($driver);
            }

            public function connect(array $params): Session
            {
                // Whoever has this driver may want another database.
                if ($params !== $this->of) {
                    return parent::connect($params);
                }
                // One that is not for this request is held on: to drop it is to close it, which costs the worker.
                if (null !== $another = ($this->again)()) {
                    return $another;
                }
                [$held, $this->held] = [$this->held, null];

                return $held ?? parent::connect($params);
            }
        };
        (new \ReflectionProperty(Connection::class, property_exists(Connection::class, '_driver') ? '_driver' : 'driver'))->setValue($connection, $holder);
    }

    /**
     * What the environment gives now, besides settings of PHP that count as a connection is opened.
     *
     * @param list<string> $names
     */
    private static function environment(Container $container, array $names): array
    {
        $values = \Closure::bind(function () use ($names): array {
            [$cache, $this->envCache] = [$this->envCache, []];
            $values = array_map(fn (string $name) => $this->getEnv($name), $names);
            // What is another one by now, the container has to learn as well.
            $this->envCache += $cache;

            return $values;
        }, $container, Container::class)();

        return [$values, environment_of_libpq(), ini_get('default_socket_timeout'), ini_get('mysqlnd.net_read_timeout')];
    }

    /** What the request would open, had nobody made the connection before. */
    private static function anew(Container $container, string $id): Session
    {
        $connection = \Closure::bind(function () use ($id): Connection {
            $made = $this->services[$id];
            unset($this->services[$id]);
            try {
                return $this->get($id);
            } finally {
                $this->services[$id] = $made;
            }
        }, $container, Container::class)();

        return $connection->getDriver()->connect($connection->getParams());
    }

    /** @return array<string, object> */
    private static function made(Container $container): array
    {
        return array_filter(\Closure::bind(fn (): array => $this->services + $this->privates, $container, Container::class)(), \is_object(...));
    }

    /** The PHP code by which the container makes it. */
    private static function code(Container $container, string $id): string
    {
        [$methods, $files] = \Closure::bind(fn (): array => [$this->methodMap, $this->fileMap], $container, Container::class)();
        if (isset($files[$id])) {
            $class = (new \ReflectionClass($container))->getNamespaceName().'\\'.basename($files[$id], '.php');
            $method = class_exists($class, false) ? new \ReflectionMethod($class, 'do') : null;
        } else {
            $method = isset($methods[$id]) ? new \ReflectionMethod($container, $methods[$id]) : null;
        }
        if (null === $method) {
            return '';
        }
        $lines = \array_slice((array) file($method->getFileName()), $method->getStartLine() - 1, $method->getEndLine() - $method->getStartLine() + 1);

        return implode('', $lines);
    }

    /** Whether no class but trusted ones is named there. */
    private static function is_plain(Container $container, string $id): bool
    {
        $code = self::code($container, $id);
        foreach (\PhpToken::tokenize("<?php $code") as $token) {
            if ($token->is(\T_NAME_FULLY_QUALIFIED) && !self::trusts(ltrim($token->text, '\\'))) {
                return false;
            }
        }

        return '' !== $code;
    }

    /** @return array<string, object> services that are named there */
    private static function named(Container $container, string $code): array
    {
        return array_filter(self::made($container), static fn (string $id): bool => str_contains($code, "'$id'"), \ARRAY_FILTER_USE_KEY);
    }

    private static function leads_to_trusted(Connection $connection, Container $container): bool
    {
        $seen = [];
        for ($waiting = [$connection]; null !== $one = array_pop($waiting);) {
            if (\is_array($one)) {
                array_push($waiting, ...array_filter(array_values($one), static fn (mixed $of): bool => \is_array($of) || \is_object($of)));
                continue;
            }
            if ($one === $container || $one instanceof ServiceLocator || isset($seen[spl_object_id($one)])) {
                continue;
            }
            $seen[spl_object_id($one)] = $one;
            if ($one instanceof \Closure) {
                $closure = new \ReflectionFunction($one);
                if (!self::trusts($closure->getClosureScopeClass()?->name ?? '')) {
                    return false;
                }
                array_push($waiting, [$closure->getClosureThis(), $closure->getClosureUsedVariables()]);
                continue;
            }
            if (!self::trusts($one::class)) {
                return false;
            }
            $waiting[] = get_mangled_object_vars($one);
        }

        return true;
    }

    private static function trusts(string $class): bool
    {
        $begins = static fn (string $with): bool => str_starts_with($class, $with);

        return [] !== array_filter(self::TRUSTED, $begins) && [] === array_filter(self::HEARS, $begins);
    }
}
