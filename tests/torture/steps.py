"""The grammar: what a boot may set up, and what a request may do with it.

A boot step makes something of a kind in `T::$s['NAME']`; a request step uses one thing of its kind, or (kind "") none.
Each is a piece of PHP; NAME and N (a number of its own) are filled in. A step observes by `T::say` (has to be what php-fpm
says), `T::chance` (drawn by chance: repeats exactly as often as under php-fpm) and `T::log` (what happens at the end).
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Step:
    """A piece of PHP. `kind` is what a boot step makes, or a request step uses."""

    name: str
    kind: str
    php: str


def _steps(text: str) -> list[Step]:
    """Steps in a notation of their own: a line `kind/name`, then indented PHP."""
    steps: list[Step] = []
    head, lines = "", list[str]()
    for line in [*text.splitlines(), "end/end"]:
        if line and not line.startswith(" "):
            if head:
                kind, name = head.split("/")
                steps.append(Step(f"{kind}/{name}", kind, "\n".join(lines)))
            head, lines = line, []
        elif line:
            lines.append(line.strip())
    return steps


BOOT = _steps(r"""
object/witness
    T::$s['NAME'] = new Witness('NAME');
object/witness_in_global
    $GLOBALS['NAME'] = new Witness('NAME');
    T::$s['NAME'] = $GLOBALS['NAME'];
object/witness_in_static
    (static function () { static $kept; $kept = new Witness('NAME'); T::$s['NAME'] = $kept; })();
object/witness_in_cycle
    T::$s['NAME'] = new Witness('NAME');
    T::$s['NAME']->other = (object) ['other' => T::$s['NAME']];
object/two_that_hold_each_other_in_order
    T::$s['NAME'] = new Witness('NAME');
    T::$s['NAME']->other = new Witness('NAME-inner');
only_global/witness
    $GLOBALS['NAME'] = new Witness('NAME');
    T::$s['NAME'] = true;
object/buffer_handed_something
    T::$s['NAME'] = new Witness('NAME');
    T::$s['NAME']->other = [new Buffer('NAME-b')];
buffer/empty
    T::$s['NAME'] = new Buffer('NAME');
weak/reference
    T::$s['NAME-o'] = new Witness('NAME');
    T::$s['NAME'] = WeakReference::create(T::$s['NAME-o']);
weakmap/map
    T::$s['NAME'] = new WeakMap();
    T::$s['NAME-o'] = new Witness('NAME');
    T::$s['NAME'][T::$s['NAME-o']] = new Witness('NAME-value');
generator/suspended
    T::$s['NAME'] = (static function () { try { for ($i = 0; ; $i++) { yield $i; } } finally { T::log('finally NAME'); } })();
    T::$s['NAME']->current();
fiber/suspended
    T::$s['NAME'] = new Fiber(static function () { try { $i = 0; while (true) { $i += Fiber::suspend($i); } } finally { T::log('fiber NAME over'); } });
    T::$s['NAME']->start();
shutdown/of_boot
    T::$s['NAME'] = 0;
    register_shutdown_function(static function () { T::log('shutdown NAME ' . T::$s['NAME']); });
shutdown/that_registers_another
    T::$s['NAME'] = 0;
    register_shutdown_function(static function () { register_shutdown_function(static fn () => T::log('later NAME')); T::log('first NAME'); });
object/thrower
    T::$s['NAME'] = new Witness('NAME');
    T::$s['NAME']->other = new Thrower();
object/sayer
    T::$s['NAME'] = new Witness('NAME');
    T::$s['NAME']->other = new Sayer('NAME');
storage/spl
    T::$s['NAME'] = new SplObjectStorage();
    T::$s['NAME'][new Witness('NAME-0')] = 0;
queue/spl
    T::$s['NAME'] = new SplQueue();
    T::$s['NAME'][] = new Witness('NAME-0');
closure/bound
    T::$s['NAME'] = (function () { return ++$this->n; })->bindTo(new Witness('NAME'));
reader/file
    T::file('NAME.txt', implode("\n", range(1, 50)));
    T::$s['NAME'] = fopen(T::path('NAME.txt'), 'r');
    fgets(T::$s['NAME']);
reader/spl
    T::file('NAME.txt', implode("\n", range(1, 50)));
    T::$s['NAME-o'] = new SplFileObject(T::path('NAME.txt'));
    T::$s['NAME-o']->fgets();
    T::$s['NAME'] = fopen(T::path('NAME.txt'), 'r');
reader/unread
    T::file('NAME.txt', implode("\n", range(1, 9000)));
    T::$s['NAME'] = fopen(T::path('NAME.txt'), 'r');
many/readers
    T::file('NAME.txt', '0123456789');
    T::$s['NAME'] = array_map(static fn () => fopen(T::path('NAME.txt'), 'r'), range(1, 300));
many/more_than_select_can_watch
    T::file('NAME.txt', '0123456789');
    T::$s['NAME'] = array_map(static fn () => fopen(T::path('NAME.txt'), 'r'), range(1, 1100));
appender/file
    T::$s['NAME'] = fopen(T::path('NAME.txt'), 'a');
both/a_plus
    T::$s['NAME'] = fopen(T::path('NAME.txt'), 'a+');
both/a_plus_with_lines
    T::file('NAME.txt', implode("\n", range(1, 50)));
    T::$s['NAME'] = fopen(T::path('NAME.txt'), 'a+');
gz/writer
    T::$s['NAME'] = gzopen(T::path('NAME.gz'), 'a');
memory/stream
    T::$s['NAME'] = fopen('php://memory', 'w+');
    fwrite(T::$s['NAME'], 'boot');
memory/temporary
    T::$s['NAME'] = fopen('php://temp/maxmemory:64', 'w+');
    fwrite(T::$s['NAME'], str_repeat('boot', 8));
directory/handle
    @mkdir(T::path('NAME.d')); for ($i = 0; $i < 12; $i++) { touch(T::path("NAME.d/$i")); }
    T::$s['NAME'] = opendir(T::path('NAME.d'));
directory/read_partly
    @mkdir(T::path('NAME.d')); for ($i = 0; $i < 12; $i++) { touch(T::path("NAME.d/$i")); }
    T::$s['NAME'] = opendir(T::path('NAME.d'));
    readdir(T::$s['NAME']); readdir(T::$s['NAME']); readdir(T::$s['NAME']);
iterator/directory
    @mkdir(T::path('NAME.d')); for ($i = 0; $i < 12; $i++) { touch(T::path("NAME.d/$i")); }
    T::$s['NAME'] = new DirectoryIterator(T::path('NAME.d'));
iterator/recursive
    @mkdir(T::path('NAME.d/in'), 0777, true); for ($i = 0; $i < 6; $i++) { touch(T::path("NAME.d/$i")); touch(T::path("NAME.d/in/$i")); }
    T::$s['NAME'] = new RecursiveIteratorIterator(new RecursiveDirectoryIterator(T::path('NAME.d'), FilesystemIterator::SKIP_DOTS));
    T::$s['NAME']->rewind();
iterator/glob
    @mkdir(T::path('NAME.d')); for ($i = 0; $i < 12; $i++) { touch(T::path("NAME.d/$i")); }
    T::$s['NAME'] = new GlobIterator(T::path('NAME.d') . '/*');
lock/held
    T::$s['NAME'] = fopen(T::path('NAME.lock'), 'a+');
    flock(T::$s['NAME'], LOCK_EX);
lock/not_held
    T::$s['NAME'] = fopen(T::path('NAME.lock'), 'a');
lock/shared
    T::$s['NAME'] = fopen(T::path('NAME.lock'), 'a+');
    flock(T::$s['NAME'], LOCK_SH);
guarded/by_a_lock
    T::$s['NAME'] = fopen(T::path('NAME.lock'), 'a');
    flock(T::$s['NAME'], LOCK_EX);
semaphore/held
    T::$s['NAME'] = T::semaphore('NAME', 1);
    sem_acquire(T::$s['NAME']);
semaphore/not_held
    T::$s['NAME'] = T::semaphore('NAME', 1);
promise/queued_at_boot
    require_once '/usr/share/php/GuzzleHttp/Promise/autoload.php';
    T::$s['NAME'] = new GuzzleHttp\Promise\Promise();
    T::$s['NAME']->then(static fn (string $with) => T::log("NAME was told $with"));
promise/task_queue
    require_once '/usr/share/php/GuzzleHttp/Promise/autoload.php';
    GuzzleHttp\Promise\Utils::queue();
    T::$s['NAME'] = new GuzzleHttp\Promise\Promise(static fn () => T::$s['NAME']->resolve('waited for'));
    T::$s['NAME']->then(static fn (string $with) => T::log("NAME was $with"));
spilled/temporary
    T::$s['NAME'] = fopen('php://temp/maxmemory:16', 'w+');
    fwrite(T::$s['NAME'], str_repeat('of the boot ', 100));
spilled/tmpfile
    T::$s['NAME'] = tmpfile();
    fwrite(T::$s['NAME'], 'of the boot');
spilled/large
    T::$s['NAME'] = tmpfile();
    fwrite(T::$s['NAME'], str_repeat('of the boot ', 25600));
cookies/written
    T::$s['NAME'] = curl_init();
    curl_setopt_array(T::$s['NAME'], [CURLOPT_COOKIEFILE => '', CURLOPT_COOKIEJAR => T::path('NAME.jar')]);
cookies/read_and_written
    T::$s['NAME'] = curl_init();
    curl_setopt_array(T::$s['NAME'], [CURLOPT_COOKIEFILE => T::path('NAME.jar'), CURLOPT_COOKIEJAR => T::path('NAME.jar')]);
xml/written
    T::$s['NAME'] = new XMLWriter();
    T::$s['NAME']->openUri(T::path('NAME.emptied'));
    T::$s['NAME']->startElement('log');
sqlite/pdo
    T::$s['NAME'] = new PDO('sqlite:' . T::path('NAME.db'));
    T::$s['NAME']->setAttribute(PDO::ATTR_ERRMODE, PDO::ERRMODE_SILENT);
    T::$s['NAME']->exec('CREATE TABLE IF NOT EXISTS t (n INTEGER PRIMARY KEY, v TEXT)');
statement/returning
    T::$s['NAME-c'] = new PDO('sqlite:' . T::path('NAME.db'));
    T::$s['NAME-c']->setAttribute(PDO::ATTR_ERRMODE, PDO::ERRMODE_SILENT);
    T::$s['NAME-c']->exec('CREATE TABLE IF NOT EXISTS t (n INTEGER PRIMARY KEY, v TEXT)');
    T::$s['NAME'] = T::$s['NAME-c']->prepare('INSERT INTO t (v) VALUES (?) RETURNING n');
statement/returning_in_two
    T::$s['NAME-c'] = new PDO('sqlite:' . T::path('NAME.db'));
    T::$s['NAME-c']->setAttribute(PDO::ATTR_ERRMODE, PDO::ERRMODE_SILENT);
    T::$s['NAME-c']->exec('CREATE TABLE IF NOT EXISTS t (n INTEGER PRIMARY KEY, v TEXT)');
    T::$s['NAME'] = T::$s['NAME-c']->prepare("INSERT INTO t (v) VALUES (?), ('second') RETURNING n");
sqlite3/connection
    T::$s['NAME'] = new SQLite3(T::path('NAME.db'));
    T::$s['NAME']->busyTimeout(2000);
    T::$s['NAME']->exec('CREATE TABLE IF NOT EXISTS t (n INTEGER PRIMARY KEY, v TEXT)');
    T::$s['NAME-s'] = T::$s['NAME']->prepare('SELECT n FROM t UNION ALL SELECT 0 UNION ALL SELECT -1');
wal/pdo
    T::$s['NAME'] = new PDO('sqlite:' . T::path('NAME.db'));
    T::$s['NAME']->setAttribute(PDO::ATTR_ERRMODE, PDO::ERRMODE_SILENT);
    T::$s['NAME']->exec('PRAGMA journal_mode = wal');
    T::$s['NAME']->exec('CREATE TABLE IF NOT EXISTS t (n INTEGER PRIMARY KEY, v TEXT)');
halfway/statement
    T::$s['NAME'] = new PDO('sqlite:' . T::path('NAME.db'));
    T::$s['NAME']->setAttribute(PDO::ATTR_ERRMODE, PDO::ERRMODE_SILENT);
    T::$s['NAME']->exec('CREATE TABLE IF NOT EXISTS t (n INTEGER PRIMARY KEY, v TEXT)');
    T::$s['NAME-half'] = T::$s['NAME']->query('SELECT n FROM t UNION ALL SELECT 0 UNION ALL SELECT -1');
    T::$s['NAME-half']->fetchColumn();
halfway/transaction
    T::$s['NAME'] = new PDO('sqlite:' . T::path('NAME.db'));
    T::$s['NAME']->setAttribute(PDO::ATTR_ERRMODE, PDO::ERRMODE_SILENT);
    T::$s['NAME']->exec('CREATE TABLE IF NOT EXISTS t (n INTEGER PRIMARY KEY, v TEXT)');
    T::$s['NAME']->exec('BEGIN IMMEDIATE');
gmp/seeded
    gmp_random_seed(N); T::$s['NAME'] = true;
gmp/seeded_and_drawn_from
    gmp_random_seed(N); gmp_random_bits(64); T::$s['NAME'] = true;
gmp/drawn_from
    gmp_random_bits(64); T::$s['NAME'] = true;
uuid/drawn_from
    uuid_create(UUID_TYPE_TIME); T::$s['NAME'] = true;
object_id/drawn_from
    new MongoDB\BSON\ObjectId(); T::$s['NAME'] = true;
object_id/of_a_private_boot
    new MongoDB\BSON\ObjectId(); T::$s['NAME-p'] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0); T::$s['NAME'] = true;
libc/drawn_from
    T::$s['NAME'] = FFI::cdef('long random(void); double drand48(void); int rand(void);'); T::$s['NAME']->random(); T::$s['NAME']->drand48();
libgcrypt/drawn_from
    T::$s['NAME'] = FFI::cdef('const char *gcry_check_version(const char *); void gcry_create_nonce(void *, size_t);', 'libgcrypt.so.20');
    T::$s['NAME']->gcry_check_version(null); T::$s['NAME-n'] = FFI::new('unsigned char[16]'); T::$s['NAME']->gcry_create_nonce(T::$s['NAME-n'], 16);
libgcrypt/of_a_private_boot
    T::$s['NAME'] = FFI::cdef('const char *gcry_check_version(const char *); void gcry_create_nonce(void *, size_t);', 'libgcrypt.so.20');
    T::$s['NAME']->gcry_check_version(null); T::$s['NAME-n'] = FFI::new('unsigned char[16]'); T::$s['NAME']->gcry_create_nonce(T::$s['NAME-n'], 16);
    T::$s['NAME-p'] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
engine/unseeded_mt
    T::$s['NAME'] = new Random\Randomizer(new Random\Engine\Mt19937());
engine/seeded_mt
    T::$s['NAME'] = new Random\Randomizer(new Random\Engine\Mt19937(N));
engine/unseeded_xoshiro
    T::$s['NAME'] = new Random\Randomizer(new Random\Engine\Xoshiro256StarStar());
engine/seeded_xoshiro
    T::$s['NAME'] = new Random\Randomizer(new Random\Engine\Xoshiro256StarStar(N));
engine/unseeded_pcg
    T::$s['NAME'] = new Random\Randomizer(new Random\Engine\PcgOneseq128XslRr64());
engine/seeded_pcg_drawn_from
    T::$s['NAME'] = new Random\Randomizer(new Random\Engine\PcgOneseq128XslRr64(N));
    T::$s['NAME']->getInt(1, 1000);
engine/secure
    T::$s['NAME'] = new Random\Randomizer();
seeded/mt_srand
    mt_srand(N); T::$s['NAME'] = true;
seeded/used_unseeded
    mt_rand(); T::$s['NAME'] = true;
setting/ini
    ini_set('precision', '7'); T::$s['NAME'] = 'precision';
setting/timezone
    date_default_timezone_set('Asia/Tokyo'); T::$s['NAME'] = 'date.timezone';
setting/locale
    setlocale(LC_ALL, 'C.UTF-8'); T::$s['NAME'] = 'precision';
setting/environment
    putenv('NAME=boot'); T::$s['NAME'] = 'precision';
setting/directory
    chdir(T::$dir); T::$s['NAME'] = 'precision';
setting/umask
    umask(027); T::$s['NAME'] = 'precision';
handler/of_errors
    set_error_handler(static function (int $no, string $text): bool { T::log("error $text"); return true; }); T::$s['NAME'] = true;
handler/of_exceptions
    set_exception_handler(static function (Throwable $e): void { T::log('uncaught ' . $e->getMessage()); echo 'handled ', $e->getMessage(), "\n"; }); T::$s['NAME'] = true;
statics/counter
    (static function () { eval('function NAME_f() { static $n = 0; return ++$n; } class NAME_c { public static $n = 0; public static array $all = []; }'); })();
    \NAME_f(); \NAME_c::$n = 5; T::$s['NAME'] = 'NAME';
pair/of_sockets
    T::$s['NAME'] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
    stream_set_blocking(T::$s['NAME'][1], false);
pair/with_something_in_it
    T::$s['NAME'] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
    stream_set_blocking(T::$s['NAME'][1], false);
    fwrite(T::$s['NAME'][0], 'of the boot');
session/place
    session_save_path(T::$dir); T::$s['NAME'] = 'NAME';
session/handler
    session_set_save_handler(new Sessions('NAME'), false); T::$s['NAME'] = 'NAME';
databases/storage
    T::$s['NAME'] = new SplObjectStorage();
    for ($i = 0; $i < 2; $i++) { T::$s['NAME'][new PDO('sqlite:' . T::path("NAME-$i.db"))] = $i; }
    foreach (T::$s['NAME'] as $c) { $c->setAttribute(PDO::ATTR_ERRMODE, PDO::ERRMODE_SILENT); $c->exec('CREATE TABLE IF NOT EXISTS t (n INTEGER PRIMARY KEY, v TEXT)'); }
stat/looked_at
    is_file(T::path('NAME.stat')) || touch(T::path('NAME.stat')); filesize(T::path('NAME.stat')); T::$s['NAME'] = T::path('NAME.stat');
datagram/socket
    T::$s['NAME'] = socket_create(AF_INET, SOCK_DGRAM, 0);
datagram/bound
    T::$s['NAME'] = socket_create(AF_INET, SOCK_DGRAM, 0); socket_bind(T::$s['NAME'], '127.0.0.1');
datagram/connected
    T::$s['NAME'] = socket_create(AF_INET, SOCK_DGRAM, 0); socket_connect(T::$s['NAME'], '127.0.0.1', 9);
datagram/told_options
    T::$s['NAME'] = socket_create(AF_INET, SOCK_DGRAM, 0); socket_set_option(T::$s['NAME'], SOL_SOCKET, SO_SNDBUF, 30000);
udp/stream
    T::$s['NAME'] = stream_socket_client('udp://127.0.0.1:9');
listener/bound
    T::$s['NAME'] = socket_create(AF_INET, SOCK_STREAM, 0); socket_bind(T::$s['NAME'], '127.0.0.1');
mariadb/plain
    T::$s['NAME'] = T::mariadb('NAME');
mariadb/told_settings
    T::$s['NAME'] = T::mariadb('NAME'); T::$s['NAME']->exec("SET time_zone = '+03:00', sql_mode = 'ANSI_QUOTES'");
postgresql/plain
    T::$s['NAME'] = T::postgresql('NAME');
postgresql/told_settings
    T::$s['NAME'] = T::postgresql('NAME'); T::$s['NAME']->exec("SET timezone = 'Asia/Tokyo'");
redis/plain
    T::$s['NAME'] = T::redis();
redis/another_database
    T::$s['NAME'] = T::redis(); T::$s['NAME']->select(3);
stray/libc
    T::$s['NAME'] = FFI::cdef('int fork(); void _exit(int); int waitpid(int, int *, int); int usleep(unsigned); int setsid();');
process/libc
    T::$s['NAME'] = FFI::cdef('int prctl(int, unsigned long, unsigned long, unsigned long, unsigned long); long syscall(long, ...);');
heavy/objects
    T::$s['NAME'] = array_map(static fn ($n) => (object) ['n' => $n], range(1, 30000));
reference/array
    T::$s['NAME'] = ['a' => 1, 'b' => [1, 2, 3]]; T::$s['NAME-r'] = &T::$s['NAME']['b'];
""")

REQUEST = _steps(r"""
object/touch
    T::$s['NAME']->n++; T::say('touched', T::$s['NAME']->n);
object/drop
    unset(T::$s['NAME']); T::say('dropped', 1);
object/replace
    T::$s['NAME'] = new Witness('NAME-new'); T::say('replaced', 1);
object/clone
    T::$s['NAME-clone'] = clone T::$s['NAME']; T::$s['NAME-clone']->n = 7; T::say('cloned', 1);
object/hang_on
    T::$s['NAME']->other = new Witness('NAME-hung'); T::say('hung', 1);
object/drop_all_and_collect
    unset(T::$s['NAME'], $GLOBALS['NAME']); gc_collect_cycles(); T::say('collected', 1);
object/serialise
    T::say('serialised', strlen(serialize(T::$s['NAME']->n)));
only_global/unset
    unset($GLOBALS['NAME']); T::say('unset', 1);
only_global/change
    $GLOBALS['NAME']->n = N; T::say('changed', $GLOBALS['NAME']->n);
buffer/add
    T::$s['NAME']->add('itemN'); T::say('kept', count(T::$s['NAME']->kept));
buffer/drop
    T::$s['NAME']->add('lastN'); T::$s['NAME'] = null; unset(T::$s['NAME']); T::say('dropped', 1);
weak/look
    T::say('alive', T::$s['NAME']->get() !== null);
weak/drop
    unset(T::$s['NAME-o']); T::say('alive', T::$s['NAME']->get() !== null);
weakmap/count
    T::say('entries', count(T::$s['NAME']));
weakmap/drop
    unset(T::$s['NAME-o']); T::say('entries', count(T::$s['NAME']));
weakmap/add
    T::$s['NAME-a'] = new Witness('NAME-a'); T::$s['NAME'][T::$s['NAME-a']] = 1; T::say('entries', count(T::$s['NAME']));
generator/next
    T::$s['NAME']->next(); T::say('at', T::$s['NAME']->current());
generator/drop
    T::$s['NAME'] = null; unset(T::$s['NAME']); T::say('dropped', 1);
generator/throw
    try { T::$s['NAME']->throw(new LogicException('x')); } catch (LogicException $e) { T::say('thrown', $e->getMessage()); }
fiber/resume
    T::say('at', T::$s['NAME']->resume(N));
fiber/drop
    unset(T::$s['NAME']); T::say('dropped', 1);
shutdown/raise
    T::$s['NAME'] += N; T::say('raised', T::$s['NAME']);
storage/attach
    T::$s['NAME'][new Witness('NAME-N')] = N; T::say('stored', count(T::$s['NAME']));
storage/clear
    T::$s['NAME']->removeAll(T::$s['NAME']); T::say('stored', count(T::$s['NAME']));
queue/push
    T::$s['NAME'][] = new Witness('NAME-N'); T::say('queued', count(T::$s['NAME']));
queue/take
    if (count(T::$s['NAME'])) { T::$s['NAME']->dequeue(); } T::say('queued', count(T::$s['NAME']));
closure/call
    T::say('called', (T::$s['NAME'])());
closure/drop
    unset(T::$s['NAME']); T::say('dropped', 1);
reader/line
    T::pause(); T::say('line', fgets(T::$s['NAME'])); T::say('at', ftell(T::$s['NAME']));
reader/seek
    fseek(T::$s['NAME'], N % 20); T::say('rest', strlen(stream_get_contents(T::$s['NAME'])));
reader/close
    fclose(T::$s['NAME']); unset(T::$s['NAME']); T::say('closed', 1);
reader/spl
    if (isset(T::$s['NAME-o'])) { T::say('spl', T::$s['NAME-o']->fgets()); T::say('key', T::$s['NAME-o']->key()); } else { T::say('no spl', 1); }
reader/all
    $h = hash_init('md5'); while (!feof(T::$s['NAME'])) { hash_update($h, fread(T::$s['NAME'], 8192)); T::pause(); } T::say('sum', hash_final($h)); T::say('at', ftell(T::$s['NAME']));
many/read
    T::pause(); $text = ''; foreach ([0, 254, 255, 256, 298, -1] as $n) { $f = T::$s['NAME'][$n < 0 ? count(T::$s['NAME']) - 1 : $n]; $text .= fread($f, N % 3 + 1) . ftell($f) . ' '; } T::say('many', $text);
many/seek_and_close
    $f = array_pop(T::$s['NAME']); fseek($f, 4); fclose($f); fseek(T::$s['NAME'][280], 7); T::say('rest', fread(T::$s['NAME'][280], 100));
appender/write
    T::say('wrote', fwrite(T::$s['NAME'], "lineN\n"));
appender/write_and_size
    fwrite(T::$s['NAME'], 'x'); clearstatcache(); T::say('size', filesize(T::path('NAME.txt')));
appender/rotate
    T::say('rotated', @rename(T::path('NAME.txt'), T::path('NAME.old-N'))); T::say('wrote', fwrite(T::$s['NAME'], "of the old\n"));
both/append_and_read
    fwrite(T::$s['NAME'], "N\n"); fseek(T::$s['NAME'], 0); T::say('all', stream_get_contents(T::$s['NAME']));
both/read_on
    T::say('on', fread(T::$s['NAME'], 4)); T::say('at', ftell(T::$s['NAME']));
both/truncate
    ftruncate(T::$s['NAME'], 0); T::say('at', ftell(T::$s['NAME']));
gz/write
    T::say('wrote', gzwrite(T::$s['NAME'], "gzN\n"));
gz/close
    gzwrite(T::$s['NAME'], 'last'); gzclose(T::$s['NAME']); unset(T::$s['NAME']); T::say('closed', 1);
memory/more
    fwrite(T::$s['NAME'], str_repeat('moreN', 30)); rewind(T::$s['NAME']); T::say('length', strlen(stream_get_contents(T::$s['NAME'])));
memory/read
    rewind(T::$s['NAME']); T::say('start', fread(T::$s['NAME'], 8));
directory/read_all
    T::pause(); $names = []; while (($e = readdir(T::$s['NAME'])) !== false) { $names[] = $e; } T::say('read', count($names)); T::say('unique', count(array_unique($names)));
directory/read_some
    readdir(T::$s['NAME']); readdir(T::$s['NAME']); T::say('some', 1);
directory/rewind_and_read
    rewinddir(T::$s['NAME']); T::pause(); $names = []; while (($e = readdir(T::$s['NAME'])) !== false) { $names[] = $e; } sort($names); T::say('names', implode(',', $names));
iterator/list
    $names = []; foreach (T::$s['NAME'] as $f) { $names[] = $f->getFilename(); } sort($names); T::say('names', implode(',', $names));
iterator/some
    T::$s['NAME']->next(); T::$s['NAME']->next(); T::say('valid', T::$s['NAME']->valid());
iterator/rest
    $n = 0; while (T::$s['NAME']->valid() && $n < 100) { $n++; T::$s['NAME']->next(); } T::say('rest', $n);
promise/resolve
    if (T::$s['NAME']->getState() === 'pending') { T::$s['NAME']->resolve('N'); T::say('resolved', T::$s['NAME']->getState()); }
promise/wait
    if (T::$s['NAME']->getState() === 'fulfilled') { T::say('waited', T::$s['NAME']->wait()); }
promise/then
    T::$s['NAME']->then(static fn (string $with) => T::log("N was told $with")); T::say('state', T::$s['NAME']->getState());
cookies/add
    T::say('added', curl_setopt(T::$s['NAME'], CURLOPT_COOKIELIST, 'Set-Cookie: cN=here; domain=example.org; expires=Fri, 01 Jan 2100 00:00:00 GMT'));
cookies/look
    $found = preg_match_all('/\bc\d+\b/', (string) @file_get_contents(T::path('NAME.jar')), $names) ? $names[0] : []; sort($found); T::say('jar', implode(' ', $found));
cookies/list
    T::say('cookies', count(curl_getinfo(T::$s['NAME'], CURLINFO_COOKIELIST)));
cookies/drop
    unset(T::$s['NAME']); T::say('dropped', 1);
spilled/write
    fseek(T::$s['NAME'], 0, SEEK_END); T::say('wrote', fwrite(T::$s['NAME'], "N\n"));
spilled/write_on
    T::say('wrote', fwrite(T::$s['NAME'], 'on N ')); rewind(T::$s['NAME']); T::say('read', md5(stream_get_contents(T::$s['NAME'])));
spilled/over
    rewind(T::$s['NAME']); T::say('over', fwrite(T::$s['NAME'], 'request N'));
spilled/read
    rewind(T::$s['NAME']); T::say('read', md5(stream_get_contents(T::$s['NAME'])));
spilled/truncate
    T::say('truncated', ftruncate(T::$s['NAME'], 5));
xml/element
    T::say('element', T::$s['NAME']->writeElement('v', 'N'));
xml/long
    T::say('element', T::$s['NAME']->writeElement('v', str_repeat('N', 3000)));
xml/flush
    T::$s['NAME']->flush(); T::say('flushed', true);
lock/other_handle
    $h = fopen(T::path('NAME.lock'), 'c+'); T::say('other', flock($h, LOCK_EX | LOCK_NB)); fclose($h);
lock/own_handle
    T::say('own', flock(T::$s['NAME'], LOCK_EX | LOCK_NB));
lock/unlock
    T::say('unlocked', flock(T::$s['NAME'], LOCK_UN));
lock/count
    $f = T::path('NAME.count'); $n = (int) @file_get_contents($f); file_put_contents($f, $n + 1); T::say('count', $n + 1);
guarded/count
    $f = T::path('NAME.count'); $n = (int) @file_get_contents($f); T::pause(); file_put_contents($f, $n + 1); T::say('counted', 1);
semaphore/other
    $other = T::semaphore('NAME', 1); T::say('other', sem_acquire($other, true)); unset($other);
semaphore/own
    T::say('own', sem_acquire(T::$s['NAME'], true));
semaphore/release
    T::say('released', @sem_release(T::$s['NAME']));
semaphore/drop
    unset(T::$s['NAME']); T::fill('NAME'); T::say('dropped', 1);
sqlite/insert
    T::say('inserted', T::$s['NAME']->exec("INSERT INTO t (v) VALUES ('N')")); T::say('id', T::$s['NAME']->lastInsertId());
sqlite/begin_and_leave
    T::say('began', @T::$s['NAME']->beginTransaction()); T::$s['NAME']->exec("INSERT INTO t (v) VALUES ('left')");
sqlite/commit
    T::$s['NAME']->beginTransaction(); T::$s['NAME']->exec("INSERT INTO t (v) VALUES ('N')"); T::say('committed', T::$s['NAME']->commit());
sqlite/count
    T::say('rows', T::$s['NAME']->query('SELECT COUNT(*) FROM t')->fetchColumn());
sqlite/read_half
    T::$s['NAME-half'] = T::$s['NAME']->query('SELECT n FROM t ORDER BY n'); T::say('half', T::$s['NAME-half']->fetchColumn());
sqlite/by_another_process
    T::say('another', T::another_process('NAME.db'));
sqlite/by_another
    $c = new PDO('sqlite:' . T::path('NAME.db'), options: [PDO::ATTR_TIMEOUT => 1]); $c->setAttribute(PDO::ATTR_ERRMODE, PDO::ERRMODE_SILENT); T::say('another', $c->exec("INSERT INTO t (v) VALUES ('other')"));
sqlite/insert_half
    T::$s['NAME-half'] = T::$s['NAME']->query("INSERT INTO t (v) VALUES ('N'), ('of N') RETURNING n"); T::say('half', T::$s['NAME-half'] ? T::$s['NAME-half']->fetchColumn() : null);
sqlite/lock
    T::say('locked', T::$s['NAME']->exec('BEGIN EXCLUSIVE')); T::say('state', T::$s['NAME']->errorCode());
statement/one_row
    T::$s['NAME']->execute(['N']); T::say('number', T::$s['NAME']->fetchColumn());
statement/whole
    T::$s['NAME']->execute(['N']); T::say('numbers', count(T::$s['NAME']->fetchAll()));
statement/count
    T::say('rows', (new PDO('sqlite:' . T::path('NAME.db')))->query('SELECT COUNT(*) FROM t')->fetchColumn());
sqlite3/insert
    T::say('inserted', @T::$s['NAME']->exec("INSERT INTO t (v) VALUES ('N')")); T::say('id', T::$s['NAME']->lastInsertRowID());
sqlite3/count
    T::say('rows', @T::$s['NAME']->querySingle('SELECT COUNT(*) FROM t'));
sqlite3/read_half
    T::$s['NAME-half'] = @T::$s['NAME']->query('SELECT n FROM t UNION ALL SELECT 0 UNION ALL SELECT -1'); T::say('half', T::$s['NAME-half'] ? T::$s['NAME-half']->fetchArray(SQLITE3_NUM) : null);
sqlite3/read_half_prepared
    T::$s['NAME-result'] = @T::$s['NAME-s']->execute(); T::say('half', T::$s['NAME-result'] ? T::$s['NAME-result']->fetchArray(SQLITE3_NUM) : null);
sqlite3/begin_and_leave
    T::say('began', @T::$s['NAME']->exec('BEGIN')); T::say('left', @T::$s['NAME']->exec("INSERT INTO t (v) VALUES ('left')"));
sqlite3/close
    T::say('closed', T::$s['NAME']->close()); unset(T::$s['NAME']); T::fill('NAME');
wal/insert
    T::say('inserted', T::$s['NAME']->exec("INSERT INTO t (v) VALUES ('N')")); T::say('id', T::$s['NAME']->lastInsertId());
wal/look
    T::say('rows', T::$s['NAME']->query('SELECT COUNT(*) FROM t')->fetchColumn());
wal/read_half
    T::$s['NAME-half'] = T::$s['NAME']->query('SELECT n FROM t UNION ALL SELECT 0 UNION ALL SELECT -1'); T::say('half', T::$s['NAME-half'] ? T::$s['NAME-half']->fetchColumn() : null);
wal/taken_from
    T::say('read', strlen((string) file_get_contents(T::path('NAME.db'))) > 0); T::say('another', T::another_process('NAME.db'));
wal/by_another
    $c = new PDO('sqlite:' . T::path('NAME.db')); $c->setAttribute(PDO::ATTR_ERRMODE, PDO::ERRMODE_SILENT); T::say('another', $c->query('SELECT COUNT(*) FROM t')->fetchColumn()); unset($c); T::fill('NAME');
wal/attached
    $c = new PDO('sqlite::memory:'); $c->exec("ATTACH '" . T::path('NAME.db') . "' AS o"); T::say('rows', $c->query('SELECT COUNT(*) FROM o.t')->fetchColumn()); unset($c); T::fill('NAME');
wal/begin_and_leave
    T::say('began', @T::$s['NAME']->beginTransaction()); T::$s['NAME']->exec("INSERT INTO t (v) VALUES ('left')");
halfway/count
    T::say('rows', T::$s['NAME']->query('SELECT COUNT(*) FROM t')->fetchColumn());
halfway/insert
    T::say('inserted', T::$s['NAME']->exec("INSERT INTO t (v) VALUES ('N')"));
halfway/by_another
    T::say('another', T::another_process('NAME.db'));
halfway/go_on
    T::say('rest', isset(T::$s['NAME-half']) ? count(T::$s['NAME-half']->fetchAll()) : T::$s['NAME']->exec('COMMIT'));
gmp/bits
    T::chance('gmp', gmp_strval(gmp_random_bits(128)));
gmp/range
    T::chance('gmp', gmp_strval(gmp_random_range(0, gmp_pow(2, 100))));
gmp/seed
    gmp_random_seed(N); T::say('gmp', gmp_strval(gmp_random_bits(60)));
object_id/draw
    T::chance('id', (string) new MongoDB\BSON\ObjectId());
libc/random
    T::chance('libc', T::rewound() ? T::$s['NAME']->random() . ' ' . T::$s['NAME']->rand() : bin2hex(random_bytes(8)));
libc/drand48
    T::chance('libc', T::rewound() ? T::$s['NAME']->drand48() . ' ' . T::$s['NAME']->drand48() : bin2hex(random_bytes(8)));
libgcrypt/nonce
    $n = T::$s['NAME-n']; T::$s['NAME']->gcry_create_nonce($n, 16); T::chance('nonce', bin2hex(FFI::string($n, 16))); unset($n);
uuid/look
    $u = uuid_create(UUID_TYPE_TIME); T::chance('uuid', $u); T::own('sequence', substr($u, 19));
uuid/many
    $many = []; for ($i = 0; $i < 300; $i++) { $many[uuid_create(UUID_TYPE_TIME)] = true; } T::say('different', count($many)); T::chance('last', array_key_last($many));
engine/draw
    T::chance('engine', T::$s['NAME']->getInt(0, PHP_INT_MAX));
engine/shuffle
    T::chance('shuffled', implode(',', T::$s['NAME']->shuffleArray(range(1, 20))));
seeded/mt_rand
    T::chance('mt', mt_rand() . '-' . mt_rand());
seeded/rand
    T::chance('shuffle', implode(',', (static function () { $a = range(1, 20); shuffle($a); return $a; })()));
setting/show
    T::say('pi', (string) M_PI); T::say('zone', date_default_timezone_get()); T::say('env', getenv('NAME')); T::say('umask', umask());
setting/change
    ini_set('precision', '3'); date_default_timezone_set('UTC'); putenv('NAME=request'); umask(077); T::say('changed', (string) M_PI);
setting/restore
    ini_restore('precision'); T::say('restored', (string) M_PI);
handler/provoke
    @trigger_error('provoked N'); echo $undefinedN ?? 'none', "\n"; T::say('provoked', 1);
handler/restore
    restore_error_handler(); restore_exception_handler(); T::say('restored', 1);
statics/count
    $f = T::$s['NAME'] . '_f'; $c = T::$s['NAME'] . '_c'; $c::$all[] = N; T::say('static', $f() . ' ' . ++$c::$n . ' ' . count($c::$all));
reference/change
    T::$s['NAME-r'][] = N; T::say('referenced', count(T::$s['NAME']['b']));
pair/exchange
    fwrite(T::$s['NAME'][0], 'N'); T::say('read', fread(T::$s['NAME'][1], 100));
pair/leave
    T::say('written', fwrite(T::$s['NAME'][0], 'left N'));
pair/look
    T::say('there', fread(T::$s['NAME'][1], 100));
pair/close
    fclose(T::$s['NAME'][0]); unset(T::$s['NAME']); T::say('closed', 1);
session/count
    session_id('NAME'); T::say('started', @session_start()); $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1; T::say('n', $_SESSION['n']);
session/write_and_go_on
    session_id('NAME'); @session_start(); $_SESSION['w'][] = N; session_write_close(); $_SESSION['w'][] = 'lost'; T::say('w', count($_SESSION['w']));
session/destroy
    session_id('NAME'); @session_start(); T::say('destroyed', session_destroy());
session/abort
    session_id('NAME'); @session_start(); $_SESSION['n'] = 99; session_abort(); T::say('status', session_status());
session/look
    T::say('status', session_status()); T::say('id', session_id());
databases/insert
    foreach (T::$s['NAME'] as $c) { T::say('inserted', $c->exec("INSERT INTO t (v) VALUES ('N')")); }
databases/begin_and_leave
    foreach (T::$s['NAME'] as $c) { @$c->beginTransaction(); T::say('left', $c->exec("INSERT INTO t (v) VALUES ('left')")); break; }
databases/half_and_clear
    foreach (T::$s['NAME'] as $c) { T::$s['NAME-half'] = $c->query("INSERT INTO t (v) VALUES ('N') RETURNING n"); T::say('half', T::$s['NAME-half']->fetchColumn()); }
    unset($c); T::$s['NAME']->removeAll(T::$s['NAME']); T::fill('NAME'); T::say('stored', count(T::$s['NAME']));
databases/clear_in_a_transaction
    foreach (T::$s['NAME'] as $c) { @$c->beginTransaction(); $c->exec("INSERT INTO t (v) VALUES ('never')"); }
    unset($c, T::$s['NAME']); T::fill('NAME'); T::say('cleared', 1);
databases/count
    for ($i = 0; $i < 2; $i++) { T::say('rows', (new PDO('sqlite:' . T::path("NAME-$i.db")))->query('SELECT COUNT(*) FROM t')->fetchColumn()); }
stat/look
    T::say('size', filesize(T::$s['NAME'])); T::say('exists', file_exists(T::$s['NAME']));
stat/grow
    file_put_contents(T::$s['NAME'], 'N', FILE_APPEND); clearstatcache(); T::say('size', filesize(T::$s['NAME']));
datagram/look
    socket_getsockname(T::$s['NAME'], $address); T::say('bound', $address); T::say('broadcasts', socket_get_option(T::$s['NAME'], SOL_SOCKET, SO_BROADCAST)); T::say('buffer', socket_get_option(T::$s['NAME'], SOL_SOCKET, SO_SNDBUF));
    T::say('hops', socket_get_option(T::$s['NAME'], IPPROTO_IP, 2)); T::say('waits', socket_get_option(T::$s['NAME'], SOL_SOCKET, SO_RCVTIMEO));
    T::say('peer', @socket_getpeername(T::$s['NAME'], $peer) ? $peer : null);
datagram/broadcast
    T::say('set', socket_set_option(T::$s['NAME'], SOL_SOCKET, SO_BROADCAST, 1));
datagram/buffer
    T::say('set', socket_set_option(T::$s['NAME'], SOL_SOCKET, SO_SNDBUF, 20000));
datagram/hops
    T::say('set', socket_set_option(T::$s['NAME'], IPPROTO_IP, 2, 7));
datagram/patience
    T::say('set', socket_set_option(T::$s['NAME'], SOL_SOCKET, SO_RCVTIMEO, ['sec' => N, 'usec' => 0]));
datagram/bind
    T::say('bound', @socket_bind(T::$s['NAME'], '127.0.0.1'));
datagram/connect
    T::say('connected', @socket_connect(T::$s['NAME'], '127.0.0.1', 10));
datagram/send
    T::say('sent', @socket_sendto(T::$s['NAME'], 'of N', 4, 0, '127.0.0.1', 9)); T::say('and', @socket_send(T::$s['NAME'], 'of N', 4, 0));
datagram/to_itself
    @socket_getsockname(T::$s['NAME'], $address, $port); if ($port === 0) { @socket_bind(T::$s['NAME'], '127.0.0.1'); socket_getsockname(T::$s['NAME'], $address, $port); } T::say('sent', @socket_sendto(T::$s['NAME'], 'of N', 4, 0, '127.0.0.1', $port));
datagram/read
    T::say('read', @socket_recv(T::$s['NAME'], $text, 100, MSG_DONTWAIT) ? $text : null);
udp/look
    $socket = socket_import_stream(T::$s['NAME']); T::say('buffer', socket_get_option($socket, SOL_SOCKET, SO_SNDBUF)); T::say('hops', socket_get_option($socket, IPPROTO_IP, 2)); unset($socket);
    T::say('peer', stream_socket_get_name(T::$s['NAME'], true)); T::say('blocks', stream_get_meta_data(T::$s['NAME'])['blocked']);
udp/buffer
    $socket = socket_import_stream(T::$s['NAME']); T::say('set', socket_set_option($socket, SOL_SOCKET, SO_SNDBUF, 20000)); unset($socket);
udp/hops
    $socket = socket_import_stream(T::$s['NAME']); T::say('set', socket_set_option($socket, IPPROTO_IP, 2, 7)); unset($socket);
udp/connect
    $socket = socket_import_stream(T::$s['NAME']); T::say('connected', @socket_connect($socket, '127.0.0.1', 10)); unset($socket);
udp/send
    T::say('sent', @fwrite(T::$s['NAME'], 'of N'));
udp/not_wait
    T::say('set', stream_set_blocking(T::$s['NAME'], false)); T::say('read', @fread(T::$s['NAME'], 100));
listener/look
    T::say('listens', socket_get_option(T::$s['NAME'], SOL_SOCKET, 30)); T::say('keeps', socket_get_option(T::$s['NAME'], SOL_SOCKET, SO_KEEPALIVE));
listener/listen
    T::say('listens', socket_listen(T::$s['NAME'], 5));
listener/keep
    T::say('set', socket_set_option(T::$s['NAME'], SOL_SOCKET, SO_KEEPALIVE, 1));
listener/accept
    socket_listen(T::$s['NAME'], 5); socket_set_nonblock(T::$s['NAME']); socket_getsockname(T::$s['NAME'], $address, $port);
    $client = stream_socket_client("tcp://127.0.0.1:$port"); $server = socket_accept(T::$s['NAME']); T::say('sent', socket_write($server, 'of N')); T::say('read', fread($client, 4)); unset($client, $server);
mariadb/insert
    T::say('inserted', T::$s['NAME']->exec('INSERT INTO ' . T::table('NAME') . " (v) VALUES ('N')")); T::say('number', T::$s['NAME']->lastInsertId());
mariadb/count
    T::say('rows', T::$s['NAME']->query('SELECT COUNT(*) FROM ' . T::table('NAME'))->fetchColumn());
mariadb/begin_and_leave
    T::say('began', T::$s['NAME']->beginTransaction()); T::say('inserted', T::$s['NAME']->exec('INSERT INTO ' . T::table('NAME') . " (v) VALUES ('left')"));
mariadb/commit
    if (!T::$s['NAME']->inTransaction()) { T::$s['NAME']->beginTransaction(); } T::$s['NAME']->exec('INSERT INTO ' . T::table('NAME') . " (v) VALUES ('N')"); T::say('committed', T::$s['NAME']->commit());
mariadb/mistake
    T::say('done', T::$s['NAME']->exec('nonsense N')); T::say('state', T::$s['NAME']->errorInfo()[0]);
mariadb/mistake_in_a_transaction
    if (!T::$s['NAME']->inTransaction()) { T::$s['NAME']->beginTransaction(); } T::$s['NAME']->exec('nonsense N'); T::say('inserted', T::$s['NAME']->exec('INSERT INTO ' . T::table('NAME') . " (v) VALUES ('N')"));
mariadb/prepared
    T::$s['NAME']->setAttribute(PDO::ATTR_EMULATE_PREPARES, false); T::$s['NAME-p'] = T::$s['NAME']->prepare('INSERT INTO ' . T::table('NAME') . ' (v) VALUES (?)'); T::say('executed', T::$s['NAME-p'] && T::$s['NAME-p']->execute(['N']));
mariadb/temporary_table
    T::say('made', T::$s['NAME']->exec('CREATE TEMPORARY TABLE kept_N (n INTEGER)')); T::say('state', T::$s['NAME']->errorInfo()[0]);
mariadb/by_another
    T::say('rows', T::mariadb('NAME')->query('SELECT COUNT(*) FROM ' . T::table('NAME'))->fetchColumn());
mariadb/set
    T::say('set', T::$s['NAME']->exec("SET @x = N, time_zone = '+01:00', autocommit = 0, SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE"));
mariadb/set_simply
    T::say('set', T::$s['NAME']->exec("SET @x = N, time_zone = '+01:00', SESSION group_concat_max_len = 100"));
mariadb/look
    T::say('session', T::$s['NAME']->query('SELECT @x, @@time_zone, @@sql_mode, @@autocommit, @@tx_isolation, @@group_concat_max_len, DATABASE(), CURRENT_ROLE()')->fetch(PDO::FETCH_NUM));
mariadb/lock
    T::say('locked', T::$s['NAME']->query("SELECT GET_LOCK('" . T::table('NAME') . "', 20)")->fetchColumn());
mariadb/read_half
    T::$s['NAME']->setAttribute(PDO::MYSQL_ATTR_USE_BUFFERED_QUERY, false); T::$s['NAME-half'] = T::$s['NAME']->query('SELECT 1 UNION SELECT 2 UNION SELECT 3'); T::say('half', T::$s['NAME-half'] ? T::$s['NAME-half']->fetchColumn() : false);
mariadb/another_database
    T::say('used', T::$s['NAME']->exec('USE mysql'));
postgresql/insert
    T::say('inserted', T::$s['NAME']->exec('INSERT INTO ' . T::table('NAME') . " (v) VALUES ('N')")); T::say('number', T::$s['NAME']->lastInsertId());
postgresql/count
    T::say('rows', T::$s['NAME']->query('SELECT COUNT(*) FROM ' . T::table('NAME'))->fetchColumn());
postgresql/begin_and_leave
    T::say('began', T::$s['NAME']->beginTransaction()); T::say('inserted', T::$s['NAME']->exec('INSERT INTO ' . T::table('NAME') . " (v) VALUES ('left')"));
postgresql/commit
    if (!T::$s['NAME']->inTransaction()) { T::$s['NAME']->beginTransaction(); } T::$s['NAME']->exec('INSERT INTO ' . T::table('NAME') . " (v) VALUES ('N')"); T::say('committed', T::$s['NAME']->commit());
postgresql/mistake
    T::say('done', T::$s['NAME']->exec('nonsense N')); T::say('state', T::$s['NAME']->errorInfo()[0]);
postgresql/mistake_in_a_transaction
    if (!T::$s['NAME']->inTransaction()) { T::$s['NAME']->beginTransaction(); } T::$s['NAME']->exec('nonsense N'); T::say('inserted', T::$s['NAME']->exec('INSERT INTO ' . T::table('NAME') . " (v) VALUES ('N')"));
postgresql/prepared
    T::$s['NAME']->setAttribute(PDO::ATTR_EMULATE_PREPARES, false); T::$s['NAME-p'] = T::$s['NAME']->prepare('INSERT INTO ' . T::table('NAME') . ' (v) VALUES (?)'); T::say('executed', T::$s['NAME-p'] && T::$s['NAME-p']->execute(['N']));
postgresql/temporary_table
    T::say('made', T::$s['NAME']->exec('CREATE TEMPORARY TABLE kept_N (n INTEGER)')); T::say('state', T::$s['NAME']->errorInfo()[0]);
postgresql/by_another
    T::say('rows', T::postgresql('NAME')->query('SELECT COUNT(*) FROM ' . T::table('NAME'))->fetchColumn());
postgresql/set
    T::say('set', T::$s['NAME']->exec("SET timezone = 'Europe/Paris'; SET search_path = pg_catalog"));
postgresql/look
    T::say('session', T::$s['NAME']->query("SELECT current_setting('timezone'), current_setting('search_path'), current_setting('application_name')")->fetch(PDO::FETCH_NUM));
postgresql/lock
    T::say('locked', T::$s['NAME']->exec("SELECT pg_advisory_lock(hashtext('" . T::table('NAME') . "'))"));
postgresql/listen
    T::say('listens', T::$s['NAME']->exec('LISTEN told')); T::say('told', T::$s['NAME']->exec("NOTIFY told, 'N'"));
postgresql/look_for_news
    T::say('news', T::$s['NAME']->pgsqlGetNotify(PDO::FETCH_ASSOC, 0)['payload'] ?? null);
postgresql/cursor
    if (!T::$s['NAME']->inTransaction()) { T::$s['NAME']->beginTransaction(); } T::say('declared', T::$s['NAME']->exec('DECLARE c CURSOR FOR SELECT generate_series(1, 9)')); T::say('state', T::$s['NAME']->errorInfo()[0]);
redis/increment
    T::say('n', T::$s['NAME']->incr(T::table('NAME')));
redis/get
    T::say('value', T::$s['NAME']->get(T::table('NAME')));
redis/push
    T::say('length', T::$s['NAME']->rPush(T::table('NAME') . 'l', 'N'));
redis/select
    T::say('selected', T::$s['NAME']->select(5)); T::say('set', T::$s['NAME']->set(T::table('NAME'), 'N'));
redis/multi_and_leave
    T::$s['NAME']->multi(); T::$s['NAME']->set(T::table('NAME'), 'never'); T::say('left', 1);
redis/multi
    T::say('done', T::$s['NAME']->multi()->incr(T::table('NAME') . 'm')->exec());
redis/pipeline_and_leave
    T::$s['NAME']->pipeline(); T::$s['NAME']->set(T::table('NAME'), 'never'); T::say('left', 1);
redis/watch
    T::say('watched', T::$s['NAME']->watch(T::table('NAME')));
redis/name
    T::say('name', T::$s['NAME']->client('getname')); T::say('named', T::$s['NAME']->client('setname', 'visitor-N'));
redis/prefix
    T::$s['NAME']->setOption(Redis::OPT_PREFIX, T::table('NAME') . 'p'); T::say('n', T::$s['NAME']->incr('N'));
redis/by_another
    T::say('value', T::redis()->get(T::table('NAME')));
stray/returns
    if (T::stray(T::$s['NAME'])) { T::$request = null; echo "of the stray\n"; header('X-Step: stray', false); return; } T::say('forked', 1);
stray/lingers
    if (T::stray(T::$s['NAME'])) { for ($i = 0; $i < 60; $i++) { T::$s['garbage'][] = str_repeat('x', 5000); T::move_positions(); T::$s['NAME']->usleep(1000); } T::$request = null; echo "of the stray\n"; return; } T::say('forked', 1);
stray/exits
    if (T::stray(T::$s['NAME'])) { T::$request = null; echo str_repeat("of the stray\n", 10000); T::$s['NAME']->usleep(5000); exit('of the stray'); } T::say('forked', 1);
stray/throws
    if (T::stray(T::$s['NAME'])) { T::$s['NAME']->usleep(5000); T::$request = null; throw new LogicException('of the stray'); } T::say('forked', 1);
stray/finishes
    if (T::stray(T::$s['NAME'])) { T::$request = null; fastcgi_finish_request(); echo "of the stray\n"; return; } T::say('forked', 1);
stray/waited_for
    $libc = T::$s['NAME']; if (($child = $libc->fork()) === 0) { $libc->_exit(0); } T::say('waited', $libc->waitpid($child, null, 0) === $child);
stray/daemon
    T::daemon(T::$s['NAME']); T::say('forked', 1);
stray/daemon_without_descriptors
    $libc = T::$s['NAME']; if (T::rewound()) { while (($f = @fopen('/dev/null', 'r')) !== false) { $GLOBALS['files'][] = $f; } unset($f); } T::daemon($libc); unset($GLOBALS['files']); T::say('forked', 1);
process/look
    T::say('name', str_starts_with((string) @file_get_contents('/proc/self/comm'), 'visitor')); T::say('slack', T::$s['NAME']->prctl(30, 0, 0, 0, 0) === 77777);
process/name
    $name = FFI::new('char[16]'); FFI::memcpy($name, 'visitorN', strlen('visitorN')); T::say('named', T::$s['NAME']->prctl(15, FFI::cast('uintptr_t', FFI::addr($name))->cdata, 0, 0, 0));
process/slack
    T::say('slack', T::$s['NAME']->prctl(29, 77777, 0, 0, 0));
process/name_by_file
    @file_put_contents('/proc/self/task/' . getmypid() . '/comm', 'visitorN'); T::say('named', str_starts_with((string) @file_get_contents('/proc/self/comm'), 'visitorN'));
process/slack_by_file
    T::say('written', @file_put_contents('/proc/self/timerslack_ns', '77777')); T::say('slack', T::$s['NAME']->prctl(30, 0, 0, 0, 0) === 77777);
process/slack_by_number
    T::say('slack', T::$s['NAME']->syscall(157, 29, 77777, 0, 0, 0));
process/closed_files
    // By a handler of its own: one of the program's would tell of it here alone.
    set_error_handler(static fn () => true);
    foreach (['oom_score_adj', 'coredump_filter', 'mem', 'comm'] as $file) { T::say($file, T::rewound() && fopen("/proc/self/$file", 'r+') !== false); }
    restore_error_handler();
heavy/read_all
    $sum = 0; foreach (T::$s['NAME'] as $o) { $sum += $o->n; } unset($o); T::say('sum', $sum);
heavy/read_one
    T::say('one', T::$s['NAME'][N]->n);
/lazy_engine
    T::$s['lazy'] ??= new Random\Randomizer(new Random\Engine\Xoshiro256StarStar()); T::chance('lazy', T::$s['lazy']->getInt(0, PHP_INT_MAX));
/lazy_engine_of_mt
    T::$s['lazy_mt'] ??= new Random\Engine\Mt19937(); T::chance('lazy', bin2hex(T::$s['lazy_mt']->generate()));
/included
    $f = T::path('made-' . T::$request . '-N.php'); file_put_contents($f, '<?php return N;'); touch($f, 1700000000); T::say('included', include $f); T::say('cached', opcache_is_script_cached($f));
/included_young
    $f = T::path('young-' . T::$request . '-N.php'); file_put_contents($f, '<?php return N;'); T::say('included', include $f); T::say('cached', opcache_is_script_cached($f));
/included_just_old_enough
    $f = T::path('two-' . T::$request . '-N.php'); file_put_contents($f, '<?php return N;'); touch($f, $_SERVER['REQUEST_TIME'] - 2); T::say('included', include $f); T::say('cached', opcache_is_script_cached($f));
/invalidated
    T::say('invalidated', opcache_invalidate(T::path('none-N.php'), true)); T::say('enabled', (bool) ini_get('opcache.enable'));
/time
    T::say('time', abs(time() - $_SERVER['REQUEST_TIME'] - T::lasts()) <= 2); T::say('now', abs((new DateTime())->getTimestamp() - time()) <= 1);
/random
    T::chance('mt', mt_rand() . mt_rand()); T::chance('lcg', lcg_value()); T::chance('bytes', bin2hex(random_bytes(8))); T::chance('id', uniqid('', true));
/once
    Once::use('N'); T::say('once', count(Once::$kept));
/rows
    Rows::kept()->add('N'); T::say('rows', 1);
/rows_of_each
    Rows::fresh()->add('N'); Rows::kept()->add('of-N'); Rows::fresh(); T::say('rows', 2);
/deferred
    T::$s['deferred'] ??= new Deferred(); T::$s['deferred']->kept[] = 'N'; T::say('deferred', count(T::$s['deferred']->kept));
/witness
    $w = new Witness('request-N'); T::say('made', 1);
/witness_kept
    T::$s['kept'][] = new Witness('kept-N'); T::say('kept', count(T::$s['kept']));
/shutdown
    register_shutdown_function(static fn () => T::log('request shutdown N')); T::say('registered', 1);
/exit
    echo "before exit\n"; exit("exit N\n");
/exception
    echo "before exception\n"; throw new RuntimeException('uncaught N');
/fatal
    echo "before fatal\n"; (static function () { eval('function twiceN() {} function twiceN() {}'); })();
/memory
    echo "before memory\n"; ini_set('memory_limit', '24M'); $x = str_repeat('x', 64 << 20); echo "not reached\n";
/output_buffer_left
    ob_start(static fn (string $text): string => strtoupper($text)); T::say('loud', 'N');
/finish
    T::say('finished', 1); fastcgi_finish_request(); T::log('after the answer N');
/file_time
    $f = T::path('stat'); @filemtime($f); @unlink($f); T::say('gone', @filesize($f)); file_put_contents($f, str_repeat('x', N)); clearstatcache(); T::say('size', filesize($f)); unlink($f);
/realpath
    $l = T::path('link'); @unlink($l); symlink(T::path('log') . 'N', $l); T::say('link', basename((string) readlink($l))); unlink($l);
/class
    if (!class_exists('MadeN', false)) { eval('class MadeN { public static int $n = 0; }'); T::say('declared', 1); } \MadeN::$n++; T::say('n', \MadeN::$n);
/define
    T::say('defined', defined('CONST_N')); define('CONST_N', N); T::say('constant', CONST_N);
/collect
    T::say('collected', gc_collect_cycles() >= 0);
/apcu
    T::say('apcu', apcu_inc(T::$dir . 'N'));
/apcu_time
    apcu_store(T::$dir . 't', N); T::say('made', abs(apcu_key_info(T::$dir . 't')['creation_time'] - $_SERVER['REQUEST_TIME']) <= 1);
/headers
    header('X-Step: N', false); http_response_code(200 + N % 4); T::say('headers', 1);
/temporary
    T::$s['tmp'] = tmpfile(); fwrite(T::$s['tmp'], 'x'); T::say('tmp', file_exists(stream_get_meta_data(T::$s['tmp'])['uri']));
""")

#: What warm-up requests do: nothing that a visitor may see, but what they make stays, and requests go on with it: engines,
#: functions that are registered once, and what is kept until a destructor hands it in. A Buffer that they fill has the
#: application boot again without them.
WARM = """
T::$s['lazy'] ??= new Random\\Randomizer(new Random\\Engine\\Xoshiro256StarStar());
T::$s['lazy']->getInt(0, 9);
T::$s['lazy_mt'] ??= new Random\\Engine\\Mt19937();
T::$s['lazy_mt']->generate();
Once::use(null);
Rows::fresh();
if (!isset($_GET['other'])) {
    Rows::kept();
    T::$s['deferred'] ??= new Deferred();
}
foreach (T::$s as $one) {
    if ($one instanceof Buffer) {
        $one->add('of warm-up');
    }
}
"""

#: Ends of a request: nothing comes after them. A stray moves in what is open, of its own request as well. What is written to a log that
#: another process has removed is lost, if no other worker has it open.
LAST = {"/exit", "/exception", "/fatal", "/memory", "stray/lingers", "wal/taken_from"}

#: What leads outside the process, so that others see it while a request runs, and what a process that was forked keeps
#: of it (kinds, or single steps): nothing for programs whose requests come at once, or that fork.
OUTSIDE = {
    *("appender", "gz", "lock", "sqlite", "statement", "session", "databases", "stat", "mariadb", "postgresql", "redis"),
    *("cookies", "xml", "semaphore", "guarded", "sqlite3", "wal", "halfway"),
    *("both/append_and_read", "both/truncate", "/included", "/included_young", "/included_just_old_enough", "/invalidated"),
    *("/file_time", "/realpath", "/apcu", "/apcu_time"),
}

#: Has a position that processes share which do not open it for themselves: what shows where requests come at once.
POSITIONED = ["reader", "many", "both", "directory", "iterator"]

#: Draws by chance: what shows where several workers answer.
DRAWN = ["uuid", "gmp", "engine", "seeded", "object_id"]

#: What only one request at a time may do, which holds a lock of the boot's: nothing for programs that fork.
GUARDED = "guarded"

#: Boots (kinds, or single steps) of which one at a time may be busy: they hold something that others wait for, or write a file when they end.
ALONE = {GUARDED, "cookies", "lock/held", "lock/shared", "semaphore/held", "halfway"}

#: Boots (kinds, or single steps) that cannot be rewound: they are served in classic mode.
DECLINED = {"halfway", "xml", "semaphore/held"}

#: Their files are what the last boot made of them.
MADE_ANEW = {"appender", "cookies"}

#: Their connections are SQLite's: somebody else writes to their files after each request.
OF_SQLITE = {"sqlite", "sqlite3", "statement", "databases", "wal", "halfway"}

#: Kinds that are there with an extension of PHP's.
OF_EXTENSIONS = {"gmp": "gmp", "uuid": "uuid", "object_id": "mongodb"}

#: What makes a boot private and a worker that used it doubtful (kinds, or single steps). Nothing else may cost one for a connection.
COSTS_CONNECTION = {
    *("pair", "mariadb", "postgresql", "redis", "wal"),
    *("datagram/broadcast", "datagram/buffer", "datagram/bind", "datagram/connect", "datagram/read", "datagram/to_itself"),
    *("datagram/hops", "datagram/patience", "udp/buffer", "udp/hops", "udp/connect", "udp/not_wait"),
    *("listener/listen", "listener/keep", "listener/accept"),
}

#: Has temporary files, or keeps record locks: who writes to one that is not put back, or loses a lock, costs the worker
#: (`rewind_descriptors`). Nothing else may.
COSTS_DESCRIPTOR = {"spilled", "wal"}

#: Writes to thousands of pages, where there are thousands of objects: a fatal error marks all of them.
HEAVY = {"heavy/read_all", "/fatal", "/memory", "/collect"}
