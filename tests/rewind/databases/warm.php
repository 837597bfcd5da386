<?php
/*
 * One connection to MariaDB that hayate_on_worker_start() opens, or each request (WARM=0), and what visitors do to it.
 *
 *   CLIENT  pdo, mysqli
 *   /?do=look     what the session is like, as JSON
 *   /?do=NAME     one way to leave it, see below; &end=exit, fatal or throw: then
 */
declare(strict_types=1);

final class Db
{
    public static PDO|mysqli|null $kept = null;

    public static function open(): PDO|mysqli
    {
        if (getenv('CLIENT') === 'mysqli') {
            mysqli_report(MYSQLI_REPORT_ERROR | MYSQLI_REPORT_STRICT);
            $db = new mysqli('localhost', getenv('USER_NAME'), getenv('PASSWORD'), getenv('DATABASE'), 0, getenv('SOCKET'));
            $db->set_charset('utf8mb4');
            $db->query("SET SESSION sql_mode = 'STRICT_ALL_TABLES'");
            return $db;
        }
        return new PDO('mysql:unix_socket=' . getenv('SOCKET') . ';dbname=' . getenv('DATABASE') . ';charset=utf8mb4',
            getenv('USER_NAME'), getenv('PASSWORD'), [
                PDO::MYSQL_ATTR_INIT_COMMAND => "SET SESSION sql_mode = 'STRICT_ALL_TABLES'",
                PDO::MYSQL_ATTR_LOCAL_INFILE => true,
            ]);
    }

    public static function get(): PDO|mysqli
    {
        return self::$kept ??= self::open();
    }

    public static function one(string $sql): mixed
    {
        $db = self::get();
        return $db instanceof PDO ? $db->query($sql)->fetchColumn() : $db->query($sql)->fetch_row()[0];
    }

    public static function run(string $sql): void
    {
        $db = self::get();
        $db instanceof PDO ? $db->exec($sql) : $db->query($sql);
    }
}

function look(): array
{
    $exists = static function (string $table): bool {
        try {
            Db::one("SELECT count(*) FROM $table");
            return true;
        } catch (Exception) {
            return false;
        }
    };
    return [
        'number' => (int) Db::one('SELECT CONNECTION_ID()'),
        'database' => Db::one('SELECT DATABASE()'),
        'role' => Db::one('SELECT CURRENT_ROLE()'),
        'user' => Db::one('SELECT CURRENT_USER()'),
        'in transaction' => (int) Db::one('SELECT @@in_transaction'),
        'variable' => Db::one('SELECT @leak'),
        'temporary' => $exists('leak'),
        'lock' => (int) Db::one("SELECT IFNULL(IS_USED_LOCK('leak') = CONNECTION_ID(), 0)"),
        'last id' => (int) Db::one('SELECT LAST_INSERT_ID()'),
        'found' => (int) Db::one('SELECT @@warning_count'),
        'settings' => Db::one("SELECT CONCAT_WS('|', @@sql_mode, @@time_zone, @@autocommit, @@tx_isolation, @@character_set_client,
            @@character_set_connection, @@character_set_results, @@collation_connection, @@character_set_database, @@collation_database, @@group_concat_max_len, @@foreign_key_checks,
            @@max_statement_time, @@timestamp < 2, @@sql_select_limit)"),
        // What follows from the seeds of "variables"; the server never says what they are.
        'chosen at random' => Db::one('SELECT RAND()') < 1e-6,
        // A statement of a visitor after the one who switched it on.
        'profiled' => (static function (): bool {
            Db::one("SELECT 'a visitor of mine'");
            $rows = Db::get()->query('SHOW PROFILES');
            $rows = $rows instanceof PDOStatement ? $rows->fetchAll(PDO::FETCH_NUM) : $rows->fetch_all();
            return (bool) array_filter($rows, static fn(array $row): bool => str_contains($row[2], 'a visitor of mine'));
        })(),
        'prepared' => (static function (): bool {
            try {
                Db::run('EXECUTE leak');
                return true;
            } catch (Exception) {
                return false;
            }
        })(),
        'handler' => (static function (): bool {
            try {
                Db::run('HANDLER items READ FIRST');
                return true;
            } catch (Exception) {
                return false;
            }
        })(),
        'rows' => (int) Db::one("SELECT count(*) FROM written WHERE word = 'not committed'"),
    ];
}

/** What a request does and leaves; those of the second list leave the connection in the middle of something. */
$ways = [
    'transaction' => static function (): void {
        Db::run('START TRANSACTION');
        Db::run("INSERT INTO written VALUES ('not committed')");
    },
    'autocommit' => static function (): void {
        Db::run('SET autocommit = 0');
        Db::run("INSERT INTO written VALUES ('not committed')");
    },
    'savepoint' => static function (): void {
        Db::run('START TRANSACTION');
        Db::run('SAVEPOINT a');
        Db::run("INSERT INTO written VALUES ('not committed')");
        Db::run('SELECT * FROM items WHERE id = 1 FOR UPDATE');
    },
    'locks' => static function (): void {
        Db::one("SELECT GET_LOCK('leak', 20)");
        Db::run('LOCK TABLES items READ');
    },
    'temporary' => static fn() => Db::run('CREATE TEMPORARY TABLE leak (n INT)'),
    'variables' => static function (): void {
        Db::run('SET @leak = 1');
        Db::run("SET SESSION time_zone = '+09:00', group_concat_max_len = 99, foreign_key_checks = 0, sql_mode = ''");
        Db::run('SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE');
        Db::run('SET timestamp = 1, sql_select_limit = 1, max_statement_time = 9, rand_seed1 = 7, rand_seed2 = 7');
    },
    'names' => static fn() => Db::run("SET NAMES latin1 COLLATE latin1_bin"),
    'use' => static fn() => Db::run('USE other'),
    'role' => static fn() => Db::run('SET ROLE leaker'),
    'hidden role' => static fn() => Db::one('SELECT other_role()'),
    'hidden database' => static fn() => Db::run("EXECUTE IMMEDIATE CONCAT('U', 'SE other')"),
    'hidden profiling' => static fn() => Db::run("EXECUTE IMMEDIATE CONCAT('SET profil', 'ing = 1')"),
    'prepared' => static fn() => Db::run("PREPARE leak FROM 'SELECT 1'"),
    'statement' => static function (): void {
        $GLOBALS['statement'] = Db::get()->prepare('SELECT word FROM items WHERE id > ?');
        $GLOBALS['statement']->execute([1]);
    },
    'identity' => static fn() => Db::run('SELECT LAST_INSERT_ID(77)'),
    'warnings' => static fn() => Db::run("SELECT CAST('x' AS INT)"),
    'error' => static function (): void {
        try {
            Db::run('SELECT nonsense');
        } catch (Exception) {
        }
    },
    'handler' => static function (): void {
        Db::run('HANDLER items OPEN');
    },
    'global lock' => static fn() => Db::run('FLUSH TABLES WITH READ LOCK'),
    'xa' => static function (): void {
        Db::run("XA START 'leak'");
        Db::run("INSERT INTO written VALUES ('not committed')");
    },
    'large' => static function (): void {
        // More than one packet of the protocol holds is not allowed; several reads and writes it is.
        $length = strlen((string) Db::one("SELECT CONCAT('" . str_repeat('x', 500000) . "', REPEAT('y', 500000))"));
        if ($length !== 1000000) {
            throw new LogicException("$length");
        }
    },
    'many' => static function (): void {
        $rows = Db::get()->query('SELECT a.word FROM items a, items b');
        $count = $rows instanceof PDOStatement ? count($rows->fetchAll()) : $rows->num_rows;
        if ($count !== 40000) {
            throw new LogicException("$count");
        }
    },
    // Its packets are numbered on from the server's question for it: there are more than 256, so that some have number 0.
    'file' => static function (): void {
        $file = tempnam(sys_get_temp_dir(), 'load');
        file_put_contents($file, str_repeat(str_repeat("\x03", 999) . "\n", 9000));
        Db::run('CREATE TEMPORARY TABLE loaded (text VARCHAR(1000))');
        Db::run("LOAD DATA LOCAL INFILE '$file' INTO TABLE loaded");
        unlink($file);
        if ((int) Db::one('SELECT count(*) FROM loaded') !== 9000) {
            throw new LogicException('not all of the file has arrived');
        }
    },
    // The answer to a file of 253 packets has number 0; PHP sends 4 KiB in each.
    ...array_combine(
        array_map(static fn(int $n): string => "file of $n packets", [252, 253, 254]),
        array_map(static fn(int $n): Closure => static function () use ($n): void {
            $file = tempnam(sys_get_temp_dir(), 'load');
            file_put_contents($file, str_repeat(str_repeat('x', 1023) . "\n", 4 * $n));
            Db::run('CREATE TEMPORARY TABLE loaded (text VARCHAR(1024))');
            Db::run("LOAD DATA LOCAL INFILE '$file' INTO TABLE loaded");
            unlink($file);
        }, [252, 253, 254]),
    ),
    'hidden in code' => static fn() => Db::run("EXECUTE /*M!100000IMMEDIATE*/ CONCAT('SET prof', 'iling = 1')"),
    'hidden in length' => static fn() => Db::run('/* ' . str_repeat('x', 17000) . ' */ SET profiling = 1'),
    // The 256th packet of an answer has number 0 again.
    ...array_combine(
        array_map(static fn(int $n): string => "$n rows", range(249, 255)),
        array_map(static fn(int $n): Closure => static function () use ($n): void {
            $rows = Db::get()->query("SELECT a.word FROM items a, items b LIMIT $n");
            $rows instanceof PDOStatement ? $rows->fetchAll() : $rows->free();
        }, range(249, 255)),
    ),
    'half of 256 packets' => static function (): void {
        $db = Db::get();
        if ($db instanceof PDO) {
            $db->setAttribute(PDO::MYSQL_ATTR_USE_BUFFERED_QUERY, false);
        }
        $rows = $db instanceof PDO ? $db->query("SELECT '' FROM items a, items b") : $db->query("SELECT '' FROM items a, items b", MYSQLI_USE_RESULT);
        for ($i = 0; $i < 253; $i++) {
            $rows instanceof PDOStatement ? $rows->fetch() : $rows->fetch_row();
        }
        $GLOBALS['half'] = $rows;
    },
    'unbuffered' => static function (): void {
        $db = Db::get();
        if ($db instanceof PDO) {
            $db->setAttribute(PDO::MYSQL_ATTR_USE_BUFFERED_QUERY, false);
            $GLOBALS['half'] = $db->query('SELECT a.word FROM items a, items b');
            $GLOBALS['half']->fetch();
        } else {
            $GLOBALS['half'] = $db->query('SELECT a.word FROM items a, items b', MYSQLI_USE_RESULT);
            $GLOBALS['half']->fetch_row();
        }
    },
    'several' => static function (): void {
        $db = Db::get();
        if ($db instanceof PDO) {
            $GLOBALS['half'] = $db->query('SELECT 1; SELECT 2; SELECT 3');
            $GLOBALS['half']->fetch();
        } else {
            $db->multi_query('SELECT 1; SELECT 2; SELECT 3');
        }
    },
    'kill' => static function (): void {
        try {
            Db::run('KILL ' . Db::one('SELECT CONNECTION_ID()'));
        } catch (Exception) {
        }
    },
    'async' => static function (): void {
        $db = Db::get();
        if ($db instanceof mysqli) {
            $db->query("INSERT INTO written VALUES ('async')", MYSQLI_ASYNC);
        }
    },
    'close' => static function (): void {
        $db = Db::get();
        if ($db instanceof mysqli) {
            $db->close();
        }
    },
    'drop' => static function (): void {
        Db::$kept = null;
        gc_collect_cycles();
    },
    'user' => static function (): void {
        $db = Db::get();
        if ($db instanceof mysqli) {
            $db->change_user('second', 'second', null);
        }
    },
    'second' => static function (): void {
        $other = Db::open();
        $other instanceof PDO ? $other->exec('SET @leak = 2') : $other->query('SET @leak = 2');
        $GLOBALS['other'] = $other;
    },
];

if (getenv('WARM') !== '0') {
    hayate_on_worker_start(static function (): void {
        Db::one('SELECT word FROM items WHERE id = 1');
    });
}

// What stays with the server, so that somebody has to end it.
$alone = [
    'xa prepared' => static function (): void {
        foreach (["XA START 'leak'", "INSERT INTO written VALUES ('not committed')", "XA END 'leak'", "XA PREPARE 'leak'"] as $statement) {
            Db::run($statement);
        }
    },
    'xa prepared by a procedure' => static function (): void {
        Db::run('CALL prepares()');
    },
    'xa put together' => static function (): void {
        foreach (['START', "INSERT INTO written VALUES ('not committed')", 'END', 'PREPARE'] as $does) {
            Db::run(str_starts_with($does, 'INSERT') ? $does : "EXECUTE IMMEDIATE CONCAT('X', 'A $does \"leak\"')");
        }
    },
    'xa put together of two' => static function (): void {
        foreach (['START', "INSERT INTO written VALUES ('not committed')", 'END', 'PREPARE'] as $does) {
            $text = str_starts_with($does, 'INSERT') ? $does : "PREPARE p FROM 'X' 'A $does \"leak\"'";
            Db::run($text);
            $text === $does || Db::run('EXECUTE p');
        }
    },
];

$handler = static function () use ($ways, $alone): void {
    if ($_SERVER['HAYATE_WARMUP'] ?? $_SERVER['HAYATE_COMPARISON'] ?? false) {
        return;
    }
    $do = $_GET['do'] ?? 'nothing';
    if ($do === 'look') {
        echo json_encode(look());
        return;
    }
    if ($do === 'ways') {
        echo json_encode(array_keys($ways));
        return;
    }
    if ($do === 'random') { // what it is, and whether those who know it know what comes
        Db::run('SET rand_seed1 = 7, rand_seed2 = 7');
        $known = Db::one('SELECT RAND()');
        Db::run('SET rand_seed1 = 11, rand_seed2 = 12');
        echo json_encode([(float) $known, (float) Db::one('SELECT RAND()')]);
        return;
    }
    if ($do === 'drawn') {
        echo (float) Db::one('SELECT RAND()');
        return;
    }
    if ($do === 'inherited') {
        echo shell_exec('ls -l /proc/self/fd');
        return;
    }
    if ($do === 'forked') {
        echo proc_close(proc_open(['true'], [], $pipes));
        return;
    }
    if ($do === 'closed') { // the first pipe has the number that the connection had
        $db = Db::get();
        if ($db instanceof mysqli) {
            $db->close();
        }
        $process = proc_open(['cat'], [['pipe', 'r'], ['pipe', 'w']], $pipes);
        fwrite($pipes[0], 'through a child');
        fclose($pipes[0]);
        echo stream_get_contents($pipes[1]), ' ', proc_close($process);
        return;
    }
    if ($do === 'socket') { // on the n-th of all there are (the connection, and the rewinder's copy of it)
        $libc = FFI::cdef('int fork(void); int waitpid(int, int *, int); void _exit(int); long write(int, char *, size_t);', 'libc.so.6');
        $sockets = array_filter(range(3, 100), static fn(int $fd): bool => str_starts_with((string) @readlink("/proc/self/fd/$fd"), 'socket:'));
        $fd = array_values($sockets)[(int) $_GET['n']] ?? null;
        $query = "\x03SET @leak = 4";
        $packet = chr(strlen($query)) . "\0\0\0" . $query;
        if ($fd !== null && isset($_GET['child'])) {
            if ($libc->fork() === 0) {
                $libc->write($fd, $packet, strlen($packet));
                $libc->_exit(0);
            }
            $libc->waitpid(-1, null, 0);
        } elseif ($fd !== null) {
            $libc->write($fd, $packet, strlen($packet));
        }
        echo count($sockets);
        return;
    }
    if ($do === 'child') {
        $libc = FFI::cdef('int fork(void); int waitpid(int, int *, int); void _exit(int);', 'libc.so.6');
        $file = tempnam(sys_get_temp_dir(), 'child');
        $status = FFI::new('int');
        if ($libc->fork() === 0) {
            try {
                Db::run('SET @leak = 3');
                file_put_contents($file, 'said it');
            } catch (Exception) {
                file_put_contents($file, 'nobody there');
            }
            $libc->_exit(7);
        }
        $libc->waitpid(-1, FFI::addr($status), 0);
        echo file_get_contents($file), ' ', $status->cdata >> 8;
        unlink($file);
        return;
    }
    echo 'done';
    ($ways[$do] ?? $alone[$do] ?? static fn() => null)();
    match ($_GET['end'] ?? '') {
        'exit' => exit,
        'fatal' => undefined_function(),
        'throw' => throw new LogicException('thrown'),
        default => null,
    };
};

while (hayate_handle_request($handler)) {
    /* Rewinding takes place in that call. */
}
