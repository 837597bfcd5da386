<?php
/*
 * One kind of database (KIND), its connection opened in one way (OPENED), and what requests do with it.
 *
 *   KIND    mysql, pgsql, sqlite (by PDO; DSN says where), redis (DSN is its socket)
 *   OPENED  request: by the request that needs it, and left open; persistent: the same, as a persistent connection;
 *           boot: once, by the boot; start: once, by each worker when it starts
 *
 *   /?do=read&n=N    the value of row N
 *   /?do=write       one more row, committed
 *   /?do=leave       a transaction with a write, a lock, a temporary table and settings of the connection, left behind;
 *                    &end=exit, fatal or throw: then
 *   /?do=look        what of that is to be seen on this connection, as JSON, and its number
 *   /?do=seed        seeds the server's random numbers, and draws two (PostgreSQL)
 *   /?do=random      draws one
 *   /?do=nothing     the connection is not used
 */
declare(strict_types=1);

abstract class Store
{
    private static ?Store $kept = null;

    /** The connection of this request. */
    public static function get(): Store
    {
        return self::$kept ??= self::open();
    }

    public static function open(): Store
    {
        $persistent = getenv('OPENED') === 'persistent';
        return getenv('KIND') === 'redis' ? new RedisStore($persistent) : new SqlStore($persistent);
    }

    abstract public function read(int $n): string;
    abstract public function write(): void;
    abstract public function leave(): void;
    /** @return array<string, mixed> what a fresh connection would say too, and its number */
    abstract public function look(): array;
}

final class SqlStore extends Store
{
    private PDO $pdo;
    private string $kind;

    public function __construct(bool $persistent)
    {
        $this->kind = (string) getenv('KIND');
        $this->pdo = new PDO((string) getenv('DSN'), getenv('USER_NAME') ?: null, getenv('PASSWORD') ?: null, [
            PDO::ATTR_PERSISTENT => $persistent,
            PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION,
            PDO::ATTR_TIMEOUT => 20,
            PDO::ATTR_EMULATE_PREPARES => false,
        ]);
    }

    public function read(int $n): string
    {
        $statement = $this->pdo->prepare('SELECT word FROM items WHERE id = ?');
        $statement->execute([$n]);
        return (string) $statement->fetchColumn();
    }

    public function write(): void
    {
        $this->pdo->prepare('INSERT INTO written (word) VALUES (?)')->execute(['committed']);
    }

    public function leave(): void
    {
        foreach ([
            'mysql' => ["SET @leak = 1", "SET time_zone = '+09:00'", "CREATE TEMPORARY TABLE leak (n INT)", "SELECT GET_LOCK('leak', 20)"],
            'pgsql' => ["SET leak.value = '1'", "SET TIME ZONE 'Asia/Tokyo'", "CREATE TEMPORARY TABLE leak (n INT)", "SELECT pg_advisory_lock(1)",
                "PREPARE leak AS SELECT 1", "LISTEN leak"],
            'sqlite' => ["PRAGMA case_sensitive_like = 1", "PRAGMA cache_size = 77", "CREATE TEMPORARY TABLE leak (n INT)"],
        ][$this->kind] as $statement) {
            $this->pdo->query($statement)->fetchAll();
        }
        $this->pdo->setAttribute(PDO::ATTR_CASE, PDO::CASE_UPPER);
        if ($this->kind === 'sqlite') {
            $this->pdo->exec('BEGIN IMMEDIATE');
        } else {
            $this->pdo->beginTransaction();
        }
        $this->pdo->exec("INSERT INTO written (word) VALUES ('not committed')");
        /* An answer that is not read to its end. */
        $GLOBALS['unread'] = $this->pdo->prepare('SELECT id, word FROM items');
        $GLOBALS['unread']->execute();
        $GLOBALS['unread']->fetch();
    }

    /** @return list<string> */
    public function random(bool $seeded, int $count): array
    {
        $seeded && $this->pdo->query('SELECT setseed(0.5)')->fetchAll();

        return $this->pdo->query("SELECT random() FROM generate_series(1, $count)")->fetchAll(PDO::FETCH_COLUMN);
    }

    public function look(): array
    {
        $one = fn(string $sql): mixed => $this->pdo->query($sql)->fetchColumn();
        $temporary = true;
        try {
            $this->pdo->query('SELECT n FROM leak')->fetchAll();
        } catch (PDOException) {
            $temporary = false;
        }
        $common = ['temporary' => $temporary, 'transaction' => $this->pdo->inTransaction(), 'case' => $this->pdo->getAttribute(PDO::ATTR_CASE)];
        return $common + match ($this->kind) {
            'mysql' => [
                'number' => $one('SELECT CONNECTION_ID()'), 'variable' => $one('SELECT @leak'), 'zone' => $one('SELECT @@time_zone'),
                'server transaction' => $one('SELECT @@in_transaction'), 'own lock' => $one("SELECT IS_USED_LOCK('leak') = CONNECTION_ID()") === 1,
            ],
            'pgsql' => [
                'number' => $one('SELECT pg_backend_pid()'), 'variable' => $one("SELECT nullif(current_setting('leak.value', true), '')"),
                'zone' => $one("SELECT current_setting('TimeZone') = 'Asia/Tokyo'"),
                'server transaction' => $one('SELECT txid_current_if_assigned()'),
                'own lock' => $one("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"),
                'prepared' => $one("SELECT count(*) FROM pg_prepared_statements WHERE name = 'leak'"),
                'listening' => $one('SELECT count(*) FROM pg_listening_channels()'),
            ],
            'sqlite' => [
                'number' => spl_object_id($this->pdo), 'like' => $one("SELECT 'a' LIKE 'A'"), 'cache' => $one('PRAGMA cache_size'),
                'database' => count($this->pdo->query('PRAGMA database_list')->fetchAll()),
            ],
        };
    }
}

final class RedisStore extends Store
{
    private Redis $redis;

    public function __construct(bool $persistent)
    {
        $this->redis = new Redis();
        $persistent ? $this->redis->pconnect((string) getenv('DSN')) : $this->redis->connect((string) getenv('DSN'));
    }

    public function read(int $n): string
    {
        return (string) $this->redis->get("item$n");
    }

    public function write(): void
    {
        $this->redis->incr('written');
    }

    public function leave(): void
    {
        $this->redis->setOption(Redis::OPT_PREFIX, 'leak:');
        $this->redis->client('setname', 'leak');
        $this->redis->select(3);
        $this->redis->set('key', 'other database');
        $this->redis->watch('key');
        $this->redis->multi();
        $this->redis->incr('written');
    }

    public function look(): array
    {
        return [
            'number' => $this->redis->rawCommand('CLIENT', 'ID'),
            'name' => $this->redis->rawCommand('CLIENT', 'GETNAME'),
            'database' => preg_match('/ db=(\d+) .* multi=(-?\d+)/', $this->redis->rawCommand('CLIENT', 'INFO'), $found) ? [$found[1], $found[2]] : '',
            'prefix' => $this->redis->getOption(Redis::OPT_PREFIX),
            'mode' => $this->redis->getMode(),
        ];
    }
}

if (getenv('OPENED') === 'boot') {
    Store::get()->read(1);
}

if (getenv('OPENED') === 'start') {
    hayate_on_worker_start(static function (): void {
        Store::get()->read(1);
    });
}

$handler = static function (): void {
    if ($_SERVER['HAYATE_WARMUP'] ?? false) {
        return;
    }
    switch ($_GET['do'] ?? 'nothing') {
        case 'read':
            echo Store::get()->read((int) $_GET['n']);
            break;
        case 'write':
            Store::get()->write();
            echo 'written';
            break;
        case 'leave':
            Store::get()->leave();
            echo 'left';
            match ($_GET['end'] ?? '') {
                'exit' => exit,
                'fatal' => undefined_function(),
                'throw' => throw new LogicException('thrown'),
                default => null,
            };
            break;
        case 'seed':
            echo json_encode(Store::get()->random(true, 2));
            break;
        case 'random':
            echo json_encode(Store::get()->random(false, 1));
            break;
        case 'look':
            echo json_encode(Store::get()->look());
            break;
        default:
            echo 'nothing';
    }
};

while (hayate_handle_request($handler)) {
    /* Rewinding takes place in that call. */
}
