<?php
/* Files, locks, sockets, processes, databases: what the kernel or others keep for the request. */
declare(strict_types=1);

final class Request_Sessions implements SessionHandlerInterface
{
    public static array $calls = [];

    public function open(string $path, string $name): bool
    {
        self::$calls[] = 'open';
        return true;
    }

    public function close(): bool
    {
        file_put_contents(Boot::$it->dir . '/sessions', implode(',', self::$calls) . ",close\n", FILE_APPEND);
        return true;
    }

    public function read(string $id): string|false
    {
        self::$calls[] = 'read';
        return '';
    }

    public function write(string $id, string $data): bool
    {
        self::$calls[] = "write $data";
        return true;
    }

    public function destroy(string $id): bool
    {
        return true;
    }

    public function gc(int $lifetime): int|false
    {
        return 0;
    }
}

/** This process's descriptors, lowest first. */
function descriptors(): array
{
    $found = array_filter(scandir('/proc/self/fd'), is_numeric(...));
    sort($found, SORT_NUMERIC);
    return $found;
}

/** A file of this process's own. */
function own_file(Boot $boot, string $name): string
{
    return $boot->dir . "/$name-" . getmypid();
}

return [
    'files_left_open' => static function (Boot $boot): void {
        for ($i = 0; $i < 40; $i++) {
            $GLOBALS['open'][] = fopen(__FILE__, 'r');
        }
        $GLOBALS['open'][] = opendir(__DIR__);
        $GLOBALS['object'] = new SplFileObject(__FILE__);
        $GLOBALS['iterator'] = new RecursiveIteratorIterator(new RecursiveDirectoryIterator(dirname(__DIR__), FilesystemIterator::SKIP_DOTS));
        $GLOBALS['iterator']->next();
    },
    'tmpfile' => static function (): void {
        $GLOBALS['tmp'] = tmpfile();
        fwrite($GLOBALS['tmp'], str_repeat('x', 100000));
        $GLOBALS['object'] = new SplTempFileObject(100);
        $GLOBALS['object']->fwrite(str_repeat('x', 100000));
    },
    'tempnam' => static function (Boot $boot): void {
        $name = tempnam($boot->dir, 't');
        $GLOBALS['handle'] = fopen($name, 'w');
        unlink($name);
        fwrite($GLOBALS['handle'], 'deleted');
    },
    'flock' => static function (Boot $boot): void {
        $GLOBALS['lock'] = fopen($boot->dir . '/lock', 'c');
        echo flock($GLOBALS['lock'], LOCK_EX) ? 'locked' : 'refused';
    },
    'flock_then_exit' => static function (Boot $boot): void {
        $lock = fopen($boot->dir . '/lock', 'c');
        flock($lock, LOCK_EX);
        $GLOBALS['lock'] = $lock;
        exit('locked');
    },
    'flock_then_fatal' => static function (Boot $boot): void {
        $GLOBALS['lock'] = fopen($boot->dir . '/lock', 'c');
        flock($GLOBALS['lock'], LOCK_EX);
        str_repeat('x', 1 << 30);
    },
    'flock_on_boot_file' => static function (Boot $boot): void {
        echo flock($boot->file, LOCK_SH) ? 'locked' : 'refused';
    },
    'unflushed' => static function (Boot $boot): void {
        $GLOBALS['gz'] = gzopen(own_file($boot, 'gz'), 'w');
        gzwrite($GLOBALS['gz'], 'compressed');
        $GLOBALS['plain'] = fopen(own_file($boot, 'plain'), 'w');
        stream_set_write_buffer($GLOBALS['plain'], 65536);
        fwrite($GLOBALS['plain'], 'not flushed');
        register_shutdown_function(static function () use ($boot): void {
            echo filesize(own_file($boot, 'plain'));
        });
    },
    'boot_file_used' => static function (Boot $boot): void {
        fseek($boot->file, 500);
        echo strlen(fread($boot->file, 100));
        $boot->lines->seek(20);
        readdir($boot->directory);
        rewinddir($boot->directory);
        foreach ($boot->files as $ignored) {
        }
        ftruncate($boot->memory, 2);
        fwrite($boot->memory, 'changed');
    },
    'long_boot_file_read_on' => static function (Boot $boot): void {
        echo strlen(stream_get_contents($boot->long));
        flock($boot->long, LOCK_SH);
    },
    'boot_semaphore_held' => static function (Boot $boot): void {
        echo json_encode(sem_acquire($boot->semaphore));
    },
    'boot_semaphore_held_then_fatal' => static function (Boot $boot): void {
        sem_acquire($boot->semaphore);
        undefined_function();
    },
    'boot_file_unblocked' => static function (Boot $boot): void {
        echo json_encode(stream_set_blocking($boot->long, false));
    },
    'boot_file_closed' => static function (Boot $boot): void {
        fclose($boot->file);
        $GLOBALS['taken'] = fopen('/dev/null', 'w');
        fwrite($GLOBALS['taken'], 'x');
        $boot->file = null;
    },
    'boot_directory_closed' => static function (Boot $boot): void {
        closedir($boot->directory);
        unset($boot->files, $boot->lines);
        gc_collect_cycles();
        for ($i = 0; $i < 5; $i++) {
            $GLOBALS['taken'][] = fopen('/dev/null', 'w');
        }
    },
    'boot_descriptor_replaced' => static function (Boot $boot): void {
        foreach (descriptors() as $fd) {
            if (@readlink("/proc/self/fd/$fd") === dirname(__DIR__) . '/boot.php') {
                $boot->libc->dup2(2, (int) $fd);
                break;
            }
        }
        echo 'replaced';
    },
    'boot_descriptor_closed' => static function (Boot $boot): void {
        foreach (descriptors() as $fd) {
            if (@readlink("/proc/self/fd/$fd") === dirname(__DIR__) . '/boot.php') {
                $boot->libc->close((int) $fd);
                break;
            }
        }
        echo 'closed';
    },
    'sockets' => static function (): void {
        $GLOBALS['server'] = stream_socket_server('tcp://127.0.0.1:0');
        $GLOBALS['client'] = stream_socket_client('tcp://' . stream_socket_get_name($GLOBALS['server'], false));
        $GLOBALS['pair'] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
        fwrite($GLOBALS['pair'][0], 'left unread');
        $GLOBALS['raw'] = socket_create(AF_INET, SOCK_STREAM, SOL_TCP);
        socket_bind($GLOBALS['raw'], '127.0.0.1');
        socket_listen($GLOBALS['raw']);
        echo is_resource($GLOBALS['client']) ? 'connected' : 'refused';
    },
    'http_client' => static function (): void {
        echo file_get_contents((string) getenv('MATRIX_HTTP'));
        $GLOBALS['left'] = fopen((string) getenv('MATRIX_HTTP'), 'r');
    },
    'persistent_socket' => static function (): void {
        $url = parse_url((string) getenv('MATRIX_HTTP'));
        $GLOBALS['kept'] = pfsockopen($url['host'], $url['port']);
        fwrite($GLOBALS['kept'], "GET / HTTP/1.0\r\n\r\n");
        echo trim(substr(stream_get_contents($GLOBALS['kept']), -4));
    },
    'curl' => static function (): void {
        $curl = curl_init((string) getenv('MATRIX_HTTP'));
        curl_setopt_array($curl, [CURLOPT_RETURNTRANSFER => true, CURLOPT_TIMEOUT => 5]);
        echo curl_exec($curl);
        $GLOBALS['curl'] = $curl;
    },
    'curl_resolver' => static function (): void {
        $curl = curl_init(str_replace('127.0.0.1', 'localhost', (string) getenv('MATRIX_HTTP')));
        curl_setopt_array($curl, [CURLOPT_RETURNTRANSFER => true, CURLOPT_TIMEOUT => 5, CURLOPT_IPRESOLVE => CURL_IPRESOLVE_V4]);
        echo curl_exec($curl);
        $GLOBALS['curl'] = $curl;
    },
    'curl_multi' => static function (): void {
        $multi = curl_multi_init();
        $share = curl_share_init();
        curl_share_setopt($share, CURLSHOPT_SHARE, CURL_LOCK_DATA_DNS);
        for ($i = 0; $i < 3; $i++) {
            $curl = curl_init((string) getenv('MATRIX_HTTP'));
            curl_setopt_array($curl, [CURLOPT_RETURNTRANSFER => true, CURLOPT_SHARE => $share, CURLOPT_WRITEFUNCTION => static fn($c, string $data): int => strlen($data)]);
            curl_multi_add_handle($multi, $curl);
            $GLOBALS['handles'][] = $curl;
        }
        do {
            curl_multi_exec($multi, $running);
        } while ($running > 2 && curl_multi_select($multi, 0.1) !== -1);
        $GLOBALS['multi'] = $multi;
    },
    'process_awaited' => static function (): void {
        $process = proc_open(['/bin/echo', 'child'], [1 => ['pipe', 'w']], $pipes);
        echo trim(stream_get_contents($pipes[1]));
        proc_close($process);
        echo trim(shell_exec('echo shell $BOOT')), exec('exit 3', $lines, $status), $status;
    },
    'process_left_running' => static function (): void {
        $GLOBALS['process'] = proc_open(['/bin/sleep', '2'], [], $pipes);
        echo is_resource($GLOBALS['process']) ? 'running' : 'failed';
    },
    'process_unread' => static function (): void {
        $GLOBALS['pipe'] = popen('echo unread', 'r');
        $GLOBALS['process'] = proc_open(['/bin/sh', '-c', 'cat; exec sleep 1'], [['pipe', 'r'], ['pipe', 'w']], $GLOBALS['pipes']);
        fwrite($GLOBALS['pipes'][0], 'x');
        echo fread($GLOBALS['pipes'][1], 1);
    },
    'sqlite_transaction' => static function (Boot $boot): void {
        $database = new PDO('sqlite:' . $boot->dir . '/database');
        $database->setAttribute(PDO::ATTR_TIMEOUT, 20);
        $database->exec('CREATE TABLE IF NOT EXISTS t (n INTEGER)');
        $database->exec('BEGIN IMMEDIATE');
        $database->exec('INSERT INTO t VALUES (1)');
        $GLOBALS['database'] = $database;
        $GLOBALS['statement'] = $database->query('SELECT count(*) FROM t');
        echo $GLOBALS['statement']->fetchColumn();
    },
    'sqlite_transaction_then_exit' => static function (Boot $boot): void {
        $database = new SQLite3($boot->dir . '/database');
        $database->busyTimeout(20000);
        $database->exec('CREATE TABLE IF NOT EXISTS t (n INTEGER)');
        $database->exec('BEGIN IMMEDIATE');
        $database->exec('INSERT INTO t VALUES (1)');
        $GLOBALS['database'] = $database;
        exit((string) $database->querySingle('SELECT count(*) FROM t'));
    },
    'sqlite_persistent' => static function (Boot $boot): void {
        $database = new PDO('sqlite:' . $boot->dir . '/persistent', null, null, [PDO::ATTR_PERSISTENT => true, PDO::ATTR_TIMEOUT => 20]);
        $database->exec('CREATE TABLE IF NOT EXISTS t (n INTEGER)');
        $database->beginTransaction();
        $database->exec('INSERT INTO t VALUES (1)');
        echo $database->query('SELECT count(*) FROM t')->fetchColumn();
    },
    'session' => static function (Boot $boot): void {
        ini_set('session.save_path', $boot->dir);
        session_id('shared');
        session_start();
        $_SESSION['count'] = 1;
    },
    'session_open_then_fatal' => static function (Boot $boot): void {
        ini_set('session.save_path', $boot->dir);
        session_id('shared');
        session_start();
        $_SESSION['leak'] = str_repeat('x', 1000);
        undefined_function();
    },
    'session_open_then_exit' => static function (Boot $boot): void {
        ini_set('session.save_path', $boot->dir);
        session_id('shared');
        session_start(['read_and_close' => false, 'name' => 'ANOTHER']);
        exit(session_name());
    },
    'session_handler' => static function (): void {
        session_set_save_handler(new Request_Sessions(), true);
        session_start();
        $_SESSION['a'] = 1;
    },
    'session_handler_throws' => static function (): void {
        session_set_save_handler(new class extends SessionHandler {
            public function open(string $path, string $name): bool
            {
                return true;
            }

            public function read(string $id): string|false
            {
                return '';
            }

            public function write(string $id, string $data): bool
            {
                throw new LogicException('cannot write');
            }

            public function close(): bool
            {
                return true;
            }
        });
        session_start();
        $_SESSION['a'] = new Node('in a session');
        echo 'started';
    },
    'session_handler_exits' => static function (): void {
        session_set_save_handler(new class extends SessionHandler {
            public function open(string $path, string $name): bool
            {
                return true;
            }

            public function read(string $id): string|false
            {
                return '';
            }

            public function write(string $id, string $data): bool
            {
                exit('exit in the session handler');
            }

            public function close(): bool
            {
                return true;
            }
        });
        session_start();
        $_SESSION['a'] = 1;
        echo 'started ';
    },
    'zip_left_open' => static function (Boot $boot): void {
        $GLOBALS['zip'] = new ZipArchive();
        $GLOBALS['zip']->open(own_file($boot, 'zip'), ZipArchive::CREATE | ZipArchive::OVERWRITE);
        $GLOBALS['zip']->addFromString('a.txt', str_repeat('a', 10000));
        $GLOBALS['zip']->addFile(__FILE__, 'b.php');
    },
    'xml_writer_left_open' => static function (Boot $boot): void {
        $GLOBALS['xml'] = new XMLWriter();
        $GLOBALS['xml']->openUri(own_file($boot, 'xml'));
        $GLOBALS['xml']->startDocument();
        $GLOBALS['xml']->startElement('open');
        $reader = new XMLReader();
        $reader->XML('<a><b/></a>');
        $reader->read();
        $GLOBALS['reader'] = $reader;
    },
    'shared_memory' => static function (): void {
        $memory = shm_attach($key = 0x4d580000 | (getmypid() & 0xffff), 10000);
        shm_put_var($memory, 1, ['in shared memory']);
        echo shm_get_var($memory, 1)[0];
        shm_remove($memory);
        $block = shmop_open($key + 0x1000000, 'c', 0600, 4096);
        shmop_write($block, 'x', 0);
        shmop_delete($block);
        $GLOBALS['block'] = $block;
    },
    'semaphore_held' => static function (): void {
        $semaphore = sem_get(0x4d590000 | (getmypid() & 0xffff));
        sem_acquire($semaphore);
        $GLOBALS['semaphore'] = $semaphore;
        sem_remove($semaphore);
    },
    'message_queue' => static function (): void {
        $queue = msg_get_queue(0x4d5a0000 | (getmypid() & 0xffff));
        msg_send($queue, 1, 'message');
        msg_receive($queue, 1, $type, 100, $message);
        msg_remove_queue($queue);
        $GLOBALS['queue'] = $queue;
        echo $message;
    },
    'large_upload' => static function (Boot $boot): void {
        echo array_sum(array_map(static fn(array $file): int => $file['size'], $_FILES)), ' ', strlen($_POST['text'] ?? '');
        foreach ($_FILES as $file) {
            echo ' ', is_uploaded_file($file['tmp_name']) ? 'uploaded' : 'missing';
        }
    },
    'upload_moved' => static function (Boot $boot): void {
        foreach ($_FILES as $file) {
            echo move_uploaded_file($file['tmp_name'], own_file($boot, 'moved')) ? 'moved' : 'kept';
        }
    },
    'body_unread' => static function (): void {
        echo $_SERVER['CONTENT_LENGTH'];
    },
    'body_half_read' => static function (): void {
        $GLOBALS['input'] = fopen('php://input', 'r');
        echo strlen(fread($GLOBALS['input'], 1000));
    },
];
