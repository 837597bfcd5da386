<?php
/* What the boot opened, or a worker's start (START=1), and what becomes of it when a request gives it up. */
final class Own
{
    public function __construct(public ?object $it = null) {}
}
function open(string $kind): object
{
    $exceptions = [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION];
    return match ($kind) {
        'pdo' => new PDO('mysql:unix_socket=' . getenv('SOCKET') . ';dbname=' . getenv('DATABASE'), getenv('USER_NAME'), getenv('PASSWORD'), $exceptions),
        'mysqli' => new mysqli('localhost', getenv('USER_NAME'), getenv('PASSWORD'), getenv('DATABASE'), 0, getenv('SOCKET')),
        'pdo_pgsql' => new PDO(getenv('PGSQL'), 'postgres', '', $exceptions),
        'pgsql' => pg_connect(getenv('PG'), PGSQL_CONNECT_FORCE_NEW),
        'redis' => (function () { $it = new Redis(); $it->connect('127.0.0.1', (int) getenv('REDIS')); $it->ping(); return $it; })(),
        'pdo_sqlite' => new PDO('sqlite:' . getenv('FILES') . '/a.sqlite', options: $exceptions + [PDO::ATTR_TIMEOUT => 1]),
        'sqlite3' => (function () { $it = new SQLite3(getenv('FILES') . '/a.sqlite'); $it->busyTimeout(500); $it->enableExceptions(true); return $it; })(),
        'file' => new SplFileObject(getenv('FILES') . '/a.lock', 'a'),
    };
}
function query(object $it, string $words): mixed
{
    return match (true) {
        $it instanceof PDO => ($answer = $it->query($words))->columnCount() > 0 ? $answer->fetchColumn() : null,
        $it instanceof mysqli => ($answer = $it->query($words)) instanceof mysqli_result ? $answer->fetch_row()[0] : null,
        $it instanceof PgSql\Connection => ($answer = pg_query($it, $words)) ? (pg_fetch_row($answer) ?: [null])[0] : null,
        $it instanceof SQLite3 => $it->querySingle($words),
    };
}
/* A transaction, and what it locks, go with the connection: the second one need not wait for the first. */
function written(Own $own, string $kind): array
{
    $begin = str_contains($kind, 'sqlite') ? 'BEGIN IMMEDIATE' : 'BEGIN';
    $patience = ['pdo' => 'SET innodb_lock_wait_timeout = 2', 'mysqli' => 'SET innodb_lock_wait_timeout = 2', 'pdo_pgsql' => "SET lock_timeout = '2s'", 'pgsql' => "SET lock_timeout = '2s'"][$kind] ?? null;
    $write = "INSERT INTO unique_names VALUES ('" . $_GET['name'] . "')";
    query($own->it, $begin);
    query($own->it, $write);
    $weak = WeakReference::create($own->it);
    $own->it = null;
    $gone = $weak->get() === null;
    $own->it = open($kind);
    $patience && query($own->it, $patience);
    query($own->it, $write);
    return [$gone, (int) query($own->it, 'SELECT count(*) FROM unique_names')];
}
function name(Own $own): array
{
    $own->it->client('setname', 'me');
    $own->it = null;
    $own->it = open('redis');
    return [$own->it->client('getname') ?: 'nobody'];
}
function lock(Own $own): array
{
    $locked = $own->it->flock(LOCK_EX);
    $own->it = null;
    return [$locked, flock(fopen(getenv('FILES') . '/a.lock', 'a'), LOCK_EX | LOCK_NB)];
}
/* A statement that was not read to its end goes without its connection. */
function half(Own $own, string $kind): array
{
    $read = $own->it->prepare('SELECT name FROM unique_names UNION ALL SELECT 1 UNION ALL SELECT 2');
    $rows = $read->execute();
    $kind === 'sqlite3' ? $rows->fetchArray() : $read->fetch();
    $rows = $read = null;
    $other = open('sqlite3');
    $own->it->exec('CREATE TABLE passing (a)');
    $own->it->exec('DROP TABLE passing');
    return [$other->exec("INSERT INTO unique_names VALUES ('" . $_GET['name'] . "')")];
}
$kind = getenv('KIND');
$own = new Own();
$start = function () use ($own, $kind): void { $own->it = open($kind); };
getenv('START') && function_exists('hayate_on_worker_start') ? hayate_on_worker_start($start) : $start();
while (hayate_handle_request(function () use ($own, $kind): void {
    try {
        $did = match ($_GET['do']) {
            'nothing' => [get_debug_type($own->it)],
            'give up' => match ($kind) { 'redis' => name($own), 'file' => lock($own), default => written($own, $kind) },
            'half' => half($own, $kind),
        };
    } catch (Throwable $error) {
        $did = [get_class($error), $error->getMessage()];
    }
    echo json_encode($did);
})) { /* until the server ends it */ }
