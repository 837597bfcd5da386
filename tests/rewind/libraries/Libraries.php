<?php

declare(strict_types=1);

namespace App;

use Doctrine\DBAL;
use Doctrine\ORM;
use GuzzleHttp;
use Monolog\Formatter\LineFormatter;
use Monolog\Handler as H;
use Monolog\Logger;
use Symfony\Component\Cache\Adapter as A;
use Symfony\Component\HttpClient;
use Symfony\Component\Lock;
use Symfony\Component\Mailer;
use Symfony\Component\Messenger;
use Symfony\Component\Mime\Email;
use Symfony\Contracts\Cache\ItemInterface;

/**
 * What an application has of libraries that hand something in: when it is said, when the script ends, or when they are
 * destroyed. One of each is made for all requests, as a container does; each request hands in its visitor's name to all.
 * `HANDS_IN` says which: `memory`, what keeps it in memory or writes to files; `connections`, what talks to others.
 */
final class Libraries
{
    private static ?self $it = null;
    /** @var array<string, \Closure(string): mixed> by name: hands in a visitor's name; what it returns is part of the answer */
    private array $things = [];
    /** @var array<string, \Closure(string): bool> by name: whether a visitor's name lies in a cache */
    private array $kept = [];
    /** @var list<\Closure(): mixed> opens each connection that requests share, and asks it something */
    private array $connections = [];
    private string $out;

    public static function get(): self
    {
        return self::$it ??= new self();
    }

    public function __construct()
    {
        $this->out = (string) self::setting('OUT');
        foreach (explode(',', self::setting('HANDS_IN')) as $which) {
            match ($which) {
                'memory' => $this->memory(),
                'connections' => $this->connections(),
            };
        }
    }

    public static function setting(string $name): string
    {
        return (string) ($_SERVER[$name] ?? getenv($name));
    }

    /** @return array<string, mixed> */
    public function handIn(string $visitor): array
    {
        return array_map(static fn (\Closure $thing) => $thing($visitor), $this->things);
    }

    /** Opens what requests share, as `connections = "warm"` wants it before the first of them. */
    public function open(): void
    {
        foreach ($this->connections as $open) {
            $open();
        }
    }

    /** @return array<string, list<string>> of these visitors, those whose name lies in a cache */
    public function arrived(array $visitors): array
    {
        return array_map(static fn (\Closure $has) => array_values(array_filter($visitors, $has)), $this->kept);
    }

    private function memory(): void
    {
        $this->logs();
        $this->caches();
        $this->locks();
        $this->guzzle();
        $this->orm('sqlite', $this->manager('sqlite', ['driver' => 'pdo_sqlite', 'path' => "$this->out/orm.db"]));
        $this->messenger('doctrine', fn () => new Messenger\Bridge\Doctrine\Transport\DoctrineTransport(
            new Messenger\Bridge\Doctrine\Transport\Connection(
                ['table_name' => 'queue', 'queue_name' => 'q', 'redeliver_timeout' => 3600, 'auto_setup' => true],
                DBAL\DriverManager::getConnection(['driver' => 'pdo_sqlite', 'path' => "$this->out/queue.db"]),
            ),
            new Messenger\Transport\Serialization\PhpSerializer(),
        ));
    }

    private function connections(): void
    {
        $redis = null;
        // As Symfony's and Laravel's are: made at first use, kept from then on.
        $connect = static function () use (&$redis): \Redis {
            if ($redis === null) {
                $redis = new \Redis();
                $redis->connect(self::setting('REDIS'));
            }

            return $redis;
        };
        $this->connections[] = static fn () => $connect()->ping();
        $socket = self::setting('MARIADB');
        $port = (int) self::setting('POSTGRESQL');
        $this->database('mariadb', "mysql:unix_socket=$socket;dbname=hayate", ['driver' => 'pdo_mysql', 'unix_socket' => $socket, 'dbname' => 'hayate', 'user' => 'hayate', 'password' => 'hayate']);
        $this->database('postgresql', "pgsql:host=127.0.0.1;port=$port;dbname=postgres", ['driver' => 'pdo_pgsql', 'host' => '127.0.0.1', 'port' => $port, 'dbname' => 'postgres', 'user' => 'postgres']);
        $this->things['redis_push'] = static fn (string $v) => $connect()->rPush('arrived:redis_push', "of $v") > 0;
        $this->things['redis_pipeline'] = static function (string $v) use ($connect) {
            $pipe = $connect()->multi(\Redis::PIPELINE);
            $pipe->rPush('arrived:redis_pipeline', "of $v");

            return \count($pipe->exec());
        };
        $this->things['redis_multi_left'] = static fn (string $v) => (static function () use ($v): bool {
            $other = new \Redis();
            $other->connect(self::setting('REDIS'));
            $other->multi();
            $other->rPush('arrived:redis_multi_left', "of $v");
            $GLOBALS['left'] = $other; // nobody executes it

            return true;
        })();
        $log = null;
        $this->things['monolog_redis'] = static function (string $v) use ($connect, &$log) {
            $log ??= new Logger('redis', [new H\BufferHandler((new H\RedisHandler($connect(), 'arrived:monolog_redis'))->setFormatter(new LineFormatter("%message%\n")))]);
            $log->info("of $v");
        };
        $syslog = new Logger('udp', [new H\BufferHandler((new H\SyslogUdpHandler('127.0.0.1', (int) self::setting('UDP')))->setFormatter(new LineFormatter('monolog_udp %message%')))]);
        $this->things['monolog_udp'] = static fn (string $v) => $syslog->info("of $v");
        $process = new Logger('process', [new H\BufferHandler((new H\ProcessHandler("cat >>$this->out/monolog_process.log"))->setFormatter(new LineFormatter("%message%\n")))]);
        $this->things['monolog_process'] = static fn (string $v) => $process->info("of $v");

        $pool = $tagged = null;
        $this->things['cache_redis_deferred'] = static function (string $v) use ($connect, &$pool, &$tagged) {
            $pool ??= new A\RedisAdapter($connect(), 'deferred');
            $tagged ??= new A\RedisTagAwareAdapter($connect(), 'tagged');

            return $pool->saveDeferred($pool->getItem("of-$v")->set($v)) && $tagged->saveDeferred($tagged->getItem("of-$v")->set($v)->tag(['names']));
        };
        $this->kept['cache_redis_deferred'] = static fn (string $v) => (new A\RedisAdapter($connect(), 'deferred'))->hasItem("of-$v");
        $this->kept['cache_redis_tagged'] = static fn (string $v) => (new A\RedisTagAwareAdapter($connect(), 'tagged'))->hasItem("of-$v");

        $this->lock('redis', static fn () => new Lock\Store\RedisStore($connect()));
        $this->messenger('redis', static fn () => new Messenger\Bridge\Redis\Transport\RedisTransport(
            // Symfony 5.4 takes where it is by itself, 6.4 among the options.
            2 < (new \ReflectionMethod(Messenger\Bridge\Redis\Transport\Connection::class, '__construct'))->getNumberOfParameters()
                ? new Messenger\Bridge\Redis\Transport\Connection(['stream' => 'queue', 'lazy' => true], ['host' => self::setting('REDIS'), 'port' => 0], [], $connect())
                : new Messenger\Bridge\Redis\Transport\Connection(['stream' => 'queue', 'lazy' => true, 'host' => self::setting('REDIS'), 'port' => 0], $connect()),
            new Messenger\Transport\Serialization\PhpSerializer(),
        ));

        $mail = new Mailer\Mailer(new Mailer\Transport\Smtp\SmtpTransport((new Mailer\Transport\Smtp\Stream\SocketStream())->setHost('127.0.0.1')->setPort((int) self::setting('SMTP'))->disableTls()));
        $email = static fn (string $subject) => (new Email())->from('a@example.org')->to('b@example.org')->subject($subject)->text('text');
        $this->things['mailer'] = static fn (string $v) => $mail->send($email("mailer of $v"));
        $mails = new Logger('mail', [new H\BufferHandler(new H\SymfonyMailerHandler($mail, $email('monolog_mailer %message%')))]);
        $this->things['monolog_mailer'] = static fn (string $v) => $mails->error("of $v");

        $http = 'http://127.0.0.1:'.self::setting('HTTP');
        $curl = new HttpClient\CurlHttpClient();
        $native = new HttpClient\NativeHttpClient();
        $this->things['http_curl'] = static fn (string $v) => $curl->request('GET', "$http/http_curl?of+$v")->getContent();
        $this->things['http_native'] = static fn (string $v) => $native->request('GET', "$http/http_native?of+$v")->getContent();
        // Nobody waits for the answer: the response's destructor does.
        $this->things['http_curl_dropped'] = static function (string $v) use ($curl, $http) { $curl->request('GET', "$http/http_curl_dropped?of+$v"); };
        $this->things['http_curl_kept'] = static function (string $v) use ($curl, $http) { $GLOBALS['kept'] = $curl->request('GET', "$http/http_curl_kept?of+$v"); };
        $guzzle = new GuzzleHttp\Client(['base_uri' => $http]);
        $this->things['guzzle'] = static fn (string $v) => (string) $guzzle->get("/guzzle?of+$v")->getBody();
        $this->things['guzzle_async'] = static fn (string $v) => \count(GuzzleHttp\Promise\Utils::settle([
            $guzzle->getAsync("/guzzle_async?of+$v"),
            $guzzle->getAsync("/guzzle_async_2?of+$v"),
        ])->wait());
    }

    /** Of two connections: PDO's own, and Doctrine's. */
    private function database(string $name, string $dsn, array $parameters): void
    {
        $pdo = $pool = $tagged = null;
        $connect = static function () use (&$pdo, $dsn, $parameters): \PDO {
            return $pdo ??= new \PDO($dsn, $parameters['user'], $parameters['password'] ?? null, [\PDO::ATTR_ERRMODE => \PDO::ERRMODE_EXCEPTION]);
        };
        $this->connections[] = static fn () => $connect()->query('SELECT 1')->fetchAll();
        $this->lock("rows_$name", static fn () => new Lock\Store\PdoStore($connect()));
        if ('postgresql' === $name) {
            // The session's.
            $this->lock('advisory', static fn () => new Lock\Store\PostgreSqlStore($connect()));
        }
        $this->things["cache_$name"] = static function (string $v) use ($connect, &$pool, &$tagged) {
            $pool ??= new A\PdoAdapter($connect(), 'deferred');
            $tagged ??= new A\TagAwareAdapter(new A\PdoAdapter($connect(), 'tagged'));

            return $pool->saveDeferred($pool->getItem("of-$v")->set($v)) && $tagged->saveDeferred($tagged->getItem("of-$v")->set($v)->tag(['names']));
        };
        $this->kept["cache_$name"] = static fn (string $v) => (new A\PdoAdapter($connect(), 'deferred'))->hasItem("of-$v");
        $this->kept["cache_tagged_$name"] = static fn (string $v) => (new A\TagAwareAdapter(new A\PdoAdapter($connect(), 'tagged')))->hasItem("of-$v");

        $manager = $this->manager($name, $parameters);
        $transport = 'mariadb' === $name ? Messenger\Bridge\Doctrine\Transport\Connection::class : Messenger\Bridge\Doctrine\Transport\PostgreSqlConnection::class;
        $this->messenger("doctrine_$name", static fn () => new Messenger\Bridge\Doctrine\Transport\DoctrineTransport(
            new $transport(['table_name' => 'messages', 'queue_name' => 'q', 'redeliver_timeout' => 3600, 'auto_setup' => true], $manager()->getConnection()),
            new Messenger\Transport\Serialization\PhpSerializer(),
        ));
        // Last, since it leaves a transaction open.
        $this->orm($name, $manager);
    }

    private function logs(): void
    {
        $file = function (string $name): H\HandlerInterface {
            return (new H\StreamHandler("$this->out/monolog_$name.log"))->setFormatter(new LineFormatter("%message%\n"));
        };
        $handlers = [
            'stream' => $file('stream'),
            'buffer' => new H\BufferHandler($file('buffer')),
            'buffer_overflow' => new H\BufferHandler($file('buffer_overflow'), 1, Logger::DEBUG, true, true),
            'crossed_passthru' => new H\FingersCrossedHandler($file('crossed_passthru'), Logger::EMERGENCY, 0, true, true, Logger::INFO),
            'crossed' => new H\FingersCrossedHandler($file('crossed'), Logger::ERROR),
            'deduplicated' => new H\DeduplicationHandler($file('deduplicated'), "$this->out/seen", Logger::ERROR),
            'overflow' => new H\OverflowHandler($file('overflow'), [Logger::INFO => 1]),
            'group' => new H\GroupHandler([new H\BufferHandler($file('group')), new H\BufferHandler($file('group_2'))]),
            'what_failure' => new H\WhatFailureGroupHandler([new H\BufferHandler($file('what_failure'))]),
            'fallback' => new H\FallbackGroupHandler([new H\BufferHandler($file('fallback'))]),
            'filter' => new H\FilterHandler(new H\BufferHandler($file('filter')), Logger::INFO),
            'sampling' => new H\SamplingHandler(new H\BufferHandler($file('sampling')), 1),
            'rotating' => (new H\RotatingFileHandler("$this->out/monolog_rotating.log", 2))->setFormatter(new LineFormatter("%message%\n")),
            'browser' => new H\BrowserConsoleHandler(),
            'chrome' => new H\ChromePHPHandler(),
        ];
        foreach ($handlers as $name => $handler) {
            $log = new Logger($name, [$handler]);
            $this->things["monolog_$name"] = static function (string $v) use ($log): void {
                $log->info("of $v");
                $log->error("error of $v");
            };
        }
    }

    private function caches(): void
    {
        $files = "$this->out/caches";
        $pools = [
            'files' => static fn () => new A\FilesystemAdapter('f', 0, $files),
            'tagged' => static fn () => new A\TagAwareAdapter(new A\FilesystemAdapter('t', 0, $files)),
            'files_tagged' => static fn () => new A\FilesystemTagAwareAdapter('ft', 0, $files),
            'php' => static fn () => new A\PhpFilesAdapter('p', 0, $files),
            'apcu' => static fn () => new A\ApcuAdapter('hayate'),
            'chain' => static fn () => new A\ChainAdapter([new A\ArrayAdapter(), new A\FilesystemAdapter('c', 0, $files)]),
            'proxy' => static fn () => new A\ProxyAdapter(new A\FilesystemAdapter('x', 0, $files), 'ns'),
            'dbal' => fn () => new A\DoctrineDbalAdapter(DBAL\DriverManager::getConnection(['driver' => 'pdo_sqlite', 'path' => "$this->out/cache.db"])),
        ];
        foreach ($pools as $name => $make) {
            $pool = $make();
            $this->things["cache_$name"] = static function (string $v) use ($pool, $name): array {
                $item = $pool->getItem("of-$v")->set($v);
                str_contains($name, 'tagged') && $item->tag(['names']);
                $computed = 0;
                $pool->get("computed-$v", static function (ItemInterface $item) use (&$computed, $v) {
                    $computed++;

                    return $v;
                });

                return [$pool->saveDeferred($item), $computed];
            };
            $this->kept["cache_$name"] = static fn (string $v): bool => $make()->getItem("of-$v")->isHit() && $make()->getItem("computed-$v")->isHit();
        }
        $this->things['apcu'] = static fn (string $v) => [apcu_add("of-$v", $v), apcu_inc("n-$v"), apcu_entry("e-$v", static fn () => $v)];
        $this->kept['apcu'] = static fn (string $v) => apcu_fetch("of-$v") === $v && apcu_fetch("n-$v") === 1;
    }

    private function lock(string $name, \Closure $store): void
    {
        $factory = $held = null;
        $this->things["lock_$name"] = function (string $v) use (&$factory, &$held, $store, $name): bool {
            $factory ??= new Lock\LockFactory($store());
            $held = $factory->createLock('the-only-one', 300);
            // Nobody releases it: its destructor does, or the next visitor does not get it.
            $got = $held->acquire();
            $got && file_put_contents("$this->out/lock_$name.log", "of $v\n", \FILE_APPEND);

            return $got;
        };
    }

    private function locks(): void
    {
        $this->lock('files', fn () => new Lock\Store\FlockStore($this->out));
        $this->lock('semaphore', static fn () => new Lock\Store\SemaphoreStore());
        $this->lock('pdo', fn () => new Lock\Store\PdoStore("sqlite:$this->out/locks.db"));
        // A lock of the boot that each request takes and leaves.
        $once = (new Lock\LockFactory(new Lock\Store\FlockStore($this->out)))->createLock('another');
        $this->things['lock_of_the_boot'] = function (string $v) use ($once): bool {
            $got = $once->acquire();
            $got && file_put_contents("$this->out/lock_of_the_boot.log", "of $v\n", \FILE_APPEND);

            return $got;
        };
    }

    private function guzzle(): void
    {
        $this->things['guzzle_promise'] = function (string $v): void {
            $promise = new GuzzleHttp\Promise\Promise();
            $promise->then(fn (string $value) => file_put_contents("$this->out/guzzle_promise.log", "$value\n", \FILE_APPEND));
            $promise->resolve("of $v");
        };
    }

    private function messenger(string $name, \Closure $make): void
    {
        $transport = $bus = null;
        $this->things["messenger_$name"] = function (string $v) use (&$transport, &$bus, $make, $name): int {
            $transport ??= $make();
            $bus ??= new Messenger\MessageBus([
                new Messenger\Middleware\DispatchAfterCurrentBusMiddleware(),
                new Messenger\Middleware\HandleMessageMiddleware(new Messenger\Handler\HandlersLocator(['*' => [
                    fn (object $message) => file_put_contents("$this->out/messenger_{$name}_handled.log", "of $message->visitor\n", \FILE_APPEND),
                ]])),
            ]);
            $message = (object) ['visitor' => $v];
            $bus->dispatch($message, [new Messenger\Stamp\DispatchAfterCurrentBusStamp()]);
            $transport->send(new Messenger\Envelope($message));
            // Whoever came before has left nothing unsent, and nothing is sent twice.
            $taken = 0;
            foreach ($transport->get() as $envelope) {
                file_put_contents("$this->out/messenger_{$name}.log", "of {$envelope->getMessage()->visitor}\n", \FILE_APPEND);
                $transport->ack($envelope);
                $taken++;
            }

            return $taken;
        };
    }

    /** @param \Closure(): ORM\EntityManager $make */
    private function orm(string $name, \Closure $make): void
    {
        $this->things["orm_$name"] = static function (string $v) use ($make): int {
            $manager = $make();
            $manager->persist(new Libraries\Arrival("of $v"));
            $manager->flush();
            $manager->persist(new Libraries\Arrival("of $v, never flushed"));
            $connection = $manager->getConnection();
            $connection->transactional(static fn (DBAL\Connection $c) => $c->insert('arrivals', ['name' => "of $v"]));
            $known = $manager->getUnitOfWork()->size();
            // Left open: rolled back with the end of the request.
            $connection->beginTransaction();
            $connection->insert('arrivals', ['name' => "of $v, rolled back"]);

            return $known;
        };
    }

    /** @return \Closure(): ORM\EntityManager the one that requests share */
    private function manager(string $name, array $parameters): \Closure
    {
        $manager = null;
        $make = function () use (&$manager, $name, $parameters): ORM\EntityManager {
            $configuration = ORM\ORMSetup::createAttributeMetadataConfiguration([__DIR__], false, "$this->out/proxies-$name", new A\ArrayAdapter());
            // The other way to make lazy objects went with Symfony 7's VarExporter.
            if (\PHP_VERSION_ID >= 80400 && method_exists($configuration, 'enableNativeLazyObjects')) {
                $configuration->enableNativeLazyObjects(true);
            }

            return $manager ??= new ORM\EntityManager(DBAL\DriverManager::getConnection($parameters, $configuration), $configuration);
        };
        $this->connections[] = static fn () => $make()->getConnection()->executeQuery('SELECT 1')->fetchAllAssociative();

        return $make;
    }
}

namespace App\Libraries;

use Doctrine\ORM\Mapping as ORM;

#[ORM\Entity]
#[ORM\Table(name: 'arrivals')]
class Arrival
{
    #[ORM\Id]
    #[ORM\Column]
    #[ORM\GeneratedValue(strategy: 'IDENTITY')]
    public ?int $id = null;

    public function __construct(#[ORM\Column(length: 200)] public string $name)
    {
    }
}
