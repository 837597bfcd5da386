<?php
/*
 * Sixteen connections, opened when the worker starts: three that can be kept, with settings that have to be repeated, and
 * others, by steps of their own, that were left in a way, or told something, that no server's reset puts back.
 *
 *   /?   the settings of the three as JSON; then changes them
 */
declare(strict_types=1);

function mariadb(array $options = [], string $more = ';dbname=hayate'): PDO
{
    return new PDO('mysql:unix_socket=' . getenv('MARIADB') . $more, 'hayate', 'hayate', $options);
}

function postgresql(): PDO
{
    return new PDO('pgsql:host=127.0.0.1;dbname=postgres;port=' . getenv('POSTGRESQL'), 'postgres');
}

function redis(): Redis
{
    $redis = new Redis();
    $redis->connect((string) getenv('REDIS'));
    return $redis;
}

final class Kept
{
    public static PDO $mariadb, $postgresql;
    public static Redis $redis;
    public static array $others = [];
}

hayate_on_worker_start(static function (): void {
    (Kept::$mariadb = mariadb())->exec("SET SESSION group_concat_max_len = 77");
    (Kept::$postgresql = postgresql())->exec("SET TIME ZONE 'Asia/Tokyo' -- the office's");
    Kept::$postgresql->exec("SET search_path = public, pg_catalog;");
    Kept::$postgresql->exec("SET app.office = 'Tokyo'");
    (Kept::$redis = redis())->select(3);
});
// A step each, so that the three are not left out with them.
foreach (['SET @x = 1', 'CREATE TEMPORARY TABLE t (n INT)', "SELECT GET_LOCK('a', 0)", 'START TRANSACTION', 'SELECT 1; SELECT 2'] as $statement) {
    hayate_on_worker_start(static function () use ($statement): void {
        Kept::$others[] = $one = mariadb();
        for ($rows = $one->query($statement); $rows->columnCount() > 0 && $rows->fetchAll() && $rows->nextRowset();) {
        }
    });
}
hayate_on_worker_start(static function (): void {
    Kept::$others[] = $one = mariadb([PDO::ATTR_EMULATE_PREPARES => false]);
    Kept::$others[] = $one->prepare('SELECT ?');
});
hayate_on_worker_start(static function (): void {
    Kept::$others[] = $one = mariadb([], '');
    $one->query('SELECT 1')->fetchAll();
});
hayate_on_worker_start(static function (): void {
    Kept::$others[] = mariadb([PDO::MYSQL_ATTR_COMPRESS => true]);
});
foreach (['LISTEN x', 'CREATE TEMPORARY TABLE t (n INT)', 'SELECT pg_advisory_lock(1)', 'BEGIN'] as $statement) {
    hayate_on_worker_start(static function () use ($statement): void {
        Kept::$others[] = $one = postgresql();
        $one->query($statement)->fetchAll();
    });
}
hayate_on_worker_start(static function (): void {
    Kept::$others[] = $one = redis();
    $one->multi();
});

$handler = static function (): void {
    if ($_SERVER['HAYATE_WARMUP'] ?? $_SERVER['HAYATE_COMPARISON'] ?? false) {
        return;
    }
    echo json_encode([
        Kept::$mariadb->query('SELECT @@group_concat_max_len')->fetchColumn(),
        Kept::$postgresql->query("SELECT concat_ws(' ', current_setting('TimeZone'), current_setting('search_path'), current_setting('app.office'))")->fetchColumn(),
        preg_match('/ db=(\d+)/', Kept::$redis->rawCommand('CLIENT', 'INFO'), $found) ? $found[1] : '',
        count(Kept::$others),
    ]);
    Kept::$mariadb->exec('SET SESSION group_concat_max_len = 99');
    Kept::$postgresql->exec("SET TIME ZONE 'UTC'; SET search_path = pg_catalog; SET app.office = 'none'");
    Kept::$redis->select(5);
};
while (hayate_handle_request($handler)) {
    /* Rewinding takes place in that call. */
}
