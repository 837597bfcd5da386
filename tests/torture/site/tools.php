<?php
/*
 * What the steps of random programs work with. A boot fills T::$s; requests use what lies there. An observation is a line
 * of the answer, `label=value`, or `label~value` where the value is drawn by chance. What happens at the end of a request
 * (destructors, shutdown functions) is written to a file, with the request's number.
 */
final class T
{
    /** What the boot and this request have made, by name. */
    public static array $s = [];
    public static ?string $request = null;
    public static int $began = 0;
    public static string $dir;
    public static bool $loops;

    public static function say(string $label, mixed $value): void
    {
        echo $label, '=', self::text($value), "\n";
    }

    public static function chance(string $label, mixed $value): void
    {
        echo $label, '~', self::text($value), "\n";
    }

    /** Outside a request nothing is written: php-fpm boots for each request, Hayate once. */
    public static function log(string $text): void
    {
        if (self::$request !== null) {
            file_put_contents(self::$dir . '/log', self::$request . ' ' . $text . "\n", FILE_APPEND);
        }
    }

    /** What no two processes may have the same: the number of the process comes along. */
    public static function own(string $label, mixed $value): void
    {
        echo $label, '@', getmypid(), '~', self::text($value), "\n";
    }

    /**
     * Takes the numbers of freed objects, which say in which order destructors run. Those of connections of the boot are
     * not free before a rewound request is over.
     */
    public static function fill(string $name): void
    {
        self::$s["$name-fill"][] = [new stdClass(), new stdClass(), new stdClass(), new stdClass(), new stdClass(), new stdClass()];
    }

    public static function path(string $name): string
    {
        return self::$dir . '/' . $name;
    }

    /** A name that nobody else has on a server that all programs share: other than its answers it may be seen. */
    public static function table(string $name): string
    {
        return 't' . hash('crc32b', self::$dir . "/$name");
    }

    /** Whether another process may write to a SQLite database at once. */
    public static function another_process(string $name): string
    {
        $code = 'import sqlite3, sys; c = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None); c.execute("BEGIN EXCLUSIVE"); print("may write")';
        return (string) exec('/usr/bin/python3 -I -c ' . escapeshellarg($code) . ' ' . escapeshellarg(self::path($name)) . ' 2>/dev/null');
    }

    /** A set of semaphores that is this program's own; its key is written to a file, since the kernel keeps it. */
    public static function semaphore(string $name, int $most): SysvSemaphore
    {
        $key = crc32(self::path($name)) & 0x7fffffff;
        self::file("$name.semaphore", (string) $key);
        return sem_get($key, $most);
    }

    /** Makes a file as a whole: several may boot at the same time. */
    public static function file(string $name, string $text): void
    {
        if (!is_file(self::path($name))) {
            file_put_contents(self::path(".$name." . getmypid()), $text);
            rename(self::path(".$name." . getmypid()), self::path($name));
        }
    }

    /** Whether there is a loop: not under php-fpm, nor where Hayate has the script boot for each request. */
    public static function rewound(): bool
    {
        return self::$loops;
    }

    /** Of the requests whose answers are compared, which are visitors, too: what they write to temporary files is nobody else's. */
    public static function compared(): void
    {
        foreach (self::$s as $name => $one) {
            if (is_resource($one) && preg_match('/^spilled/', $name)) {
                fwrite($one, 'of a comparison ');
            }
        }
    }

    /** For how many seconds this request has run: on a busy machine for many. */
    public static function lasts(): int
    {
        return intdiv(hrtime(true) - self::$began, 1_000_000_000);
    }

    /** What keeps a time, long after the boot. */
    public static function late(): void
    {
        apcu_store(self::path('late'), 1);
        self::say('apcu', abs(apcu_key_info(self::path('late'))['creation_time'] - $_SERVER['REQUEST_TIME']) <= 1);
        self::say('path', (realpath_cache_get()[self::$dir]['expires'] ?? 0) >= time() - 1);
    }

    /** Time in which others may be answered: under php-fpm there are none. */
    public static function pause(): void
    {
        if (self::rewound()) {
            usleep(2000);
        }
    }

    /** Keeps this process busy until somebody says that it is over; 10 seconds at most. */
    public static function busy(): void
    {
        touch(self::path('.busy'));
        for ($i = 0; $i < 5000 && !file_exists(self::path('.over')); $i++) {
            usleep(2000);
        }
    }

    /**
     * Forks; true in the child. It is listed in `strays`, to be looked for when the server is gone. Under php-fpm, whose
     * children go on in its own loop, it ends at once: so it has no part in what is right. One that returns or throws
     * forgets its request first, for the variables of its copies of functions are destroyed, as anywhere.
     */
    public static function stray(FFI $libc, string $what = 'child'): bool
    {
        if ($libc->fork() !== 0) {
            return false;
        }
        if (!self::rewound()) {
            $libc->_exit(0);
        }
        unset($GLOBALS['files']);
        file_put_contents(self::$dir . '/strays', getmypid() . " $what\n", FILE_APPEND);
        return true;
    }

    /** Moves in each file and directory of the boot, as one who reads there does. */
    public static function move_positions(): void
    {
        foreach (self::$s as $some) {
            foreach (is_array($some) ? $some : [$some] as $one) {
                if ($one instanceof DirectoryIterator) {
                    $one->rewind();
                    $one->valid();
                } elseif (is_resource($one)) {
                    stream_get_meta_data($one)['stream_type'] === 'dir' ? rewinddir($one) . readdir($one) : @fseek($one, 0, SEEK_END);
                }
            }
        }
    }

    /** A child of a child that has ended: it is nobody's, and stays until the server ends. */
    public static function daemon(FFI $libc): void
    {
        $what = 'daemon of ' . getmypid() . ' by ' . self::$request;
        if (($child = $libc->fork()) === 0) {
            $libc->setsid();
            if (self::stray($libc, $what)) {
                for ($i = 0; $i < 600; $i++) {
                    $libc->usleep(1000000);
                }
            }
            $libc->_exit(0);
        }
        $libc->waitpid($child, null, 0);
    }

    private static function place(string $server): string
    {
        return getenv("HAYATE_$server") ?: $_SERVER["HAYATE_$server"];
    }

    public static function mariadb(string $name): PDO
    {
        $open = static fn (): PDO => new PDO('mysql:unix_socket=' . self::place('MARIADB') . ';dbname=hayate', 'hayate', 'hayate');
        return self::filled($open, $name, 'INTEGER AUTO_INCREMENT');
    }

    public static function postgresql(string $name): PDO
    {
        $open = static fn (): PDO => new PDO('pgsql:host=127.0.0.1;port=' . self::place('POSTGRESQL') . ';dbname=postgres;user=postgres');
        return self::filled($open, $name, 'SERIAL');
    }

    /** The table is made on a connection of its own: one that made something is not kept. */
    private static function filled(Closure $open, string $name, string $number): PDO
    {
        $open()->exec('CREATE TABLE IF NOT EXISTS ' . self::table($name) . " (n $number PRIMARY KEY, v VARCHAR(200))");
        $connection = $open();
        $connection->setAttribute(PDO::ATTR_ERRMODE, PDO::ERRMODE_SILENT);
        return $connection;
    }

    public static function redis(): Redis
    {
        $connection = new Redis();
        $connection->connect(self::place('REDIS'));
        return $connection;
    }

    public static function text(mixed $value): string
    {
        return is_string($value) && preg_match('/\A[\w .:;,+-]*\z/', $value) ? $value : json_encode($value, JSON_PARTIAL_OUTPUT_ON_ERROR);
    }
}

/** Says when it is destroyed. */
class Witness
{
    public mixed $other = null;
    public int $n = 0;

    public function __construct(public string $name)
    {
    }

    public function __destruct()
    {
        T::log("destroyed {$this->name} {$this->n}");
    }
}

/** Keeps what it is handed until it is destroyed, as buffering log handlers, promises and deferred caches do. */
class Buffer extends Witness
{
    public array $kept = [];

    public function add(string $item): void
    {
        $this->kept[] = $item;
    }

    public function __destruct()
    {
        T::log("flushed {$this->name} " . implode(',', $this->kept));
    }
}

/** Registers its shutdown function at the first use, behind a flag, as libraries do. */
class Once
{
    private static bool $registered = false;
    public static array $kept = [];

    /** Nothing: registers alone, as a warm-up request has it that leaves nothing behind. */
    public static function use(?string $item): void
    {
        if ($item !== null) {
            self::$kept[] = $item;
        }
        if (!self::$registered) {
            self::$registered = true;
            register_shutdown_function(static function (): void {
                if (self::$kept) {
                    T::log('once ' . implode(',', self::$kept));
                }
            });
        }
    }
}

/** Of several objects each registers a function of its own when it is made; one is kept, others are made by each request. */
class Rows
{
    private static ?self $kept = null;
    private array $rows = [];

    private function __construct()
    {
        register_shutdown_function([$this, 'run']);
    }

    public static function kept(): self
    {
        return self::$kept ??= new self();
    }

    public static function fresh(): self
    {
        return new self();
    }

    public function add(string $row): void
    {
        $this->rows[] = $row;
    }

    public function run(): void
    {
        if ($this->rows) {
            T::log('rows ' . implode(',', $this->rows));
        }
    }
}

/** Keeps what it is handed as a Buffer does; one that was handed nothing is not noticed. */
class Deferred
{
    public array $kept = [];

    public function __destruct()
    {
        if ($this->kept) {
            T::log('saved ' . implode(',', $this->kept));
        }
    }
}

class Thrower
{
    public function __destruct()
    {
        T::log('throws');
        throw new RuntimeException('from a destructor');
    }
}

class Sayer
{
    public function __construct(public string $name)
    {
    }

    public function __destruct()
    {
        echo "destructor {$this->name} speaks\n";
    }
}

/** Sessions of the application's own making, in files. */
class Sessions implements SessionHandlerInterface
{
    public function __construct(private string $name)
    {
    }

    public function open(string $path, string $name): bool
    {
        T::log("session opened {$this->name}");
        return true;
    }

    public function close(): bool
    {
        T::log("session closed {$this->name}");
        return true;
    }

    public function read(string $id): string
    {
        return (string) @file_get_contents(T::path("own-$id"));
    }

    public function write(string $id, string $data): bool
    {
        return file_put_contents(T::path("own-$id"), $data) !== false;
    }

    public function destroy(string $id): bool
    {
        return @unlink(T::path("own-$id")) || true;
    }

    public function gc(int $lifetime): int
    {
        return 0;
    }
}
