<?php
/*
 * A connection that hayate_on_worker_start() opens, to a server whose settings are changed at run time.
 *
 *   DSN, USER_NAME, PASSWORD; MORE: so many connections besides, each by a step of its own
 *   /?text=T   the number of the connection, and T as the server reads it when PDO has quoted it
 *   /?ask=SQL  what the server answers
 *   /?send=SQL nothing: it is asked through pgsql, on a connection of the worker's (PGSQL), and not read
 */
declare(strict_types=1);

final class Db
{
    public static ?PDO $kept = null;
    public static array $more = [];

    public static function get(): PDO
    {
        return self::$kept ??= self::open();
    }

    public static function open(): PDO
    {
        $options = [PDO::ATTR_EMULATE_PREPARES => true, PDO::ATTR_TIMEOUT => 20];
        return new PDO(getenv('DSN'), getenv('USER_NAME'), getenv('PASSWORD') ?: '', $options);
    }
}

if (function_exists('hayate_on_worker_start')) {
    hayate_on_worker_start(static function (): void {
        Db::get()->query('SELECT 1')->fetchAll();
    });
    for ($i = 0; $i < (int) getenv('MORE'); $i++) {
        hayate_on_worker_start(static function (): void {
            Db::$more[] = Db::open();
        });
    }
}
if (getenv('PGSQL') && function_exists('hayate_on_worker_start')) {
    hayate_on_worker_start(static function (): void {
        Db::$more[] = pg_connect(getenv('PGSQL'));
        pg_query(Db::$more[0], 'SELECT 1');
    });
}
while (hayate_handle_request(static function (): void {
    if (isset($_GET['send'])) {
        echo json_encode(pg_send_query(Db::$more[0], $_GET['send']));
        return;
    }
    $db = Db::get();
    if (isset($_GET['ask'])) {
        echo json_encode($db->query($_GET['ask'])->fetchColumn());
        return;
    }
    $number = $db->query(str_starts_with(getenv('DSN'), 'pgsql') ? 'SELECT pg_backend_pid()' : 'SELECT CONNECTION_ID()')->fetchColumn();
    $ask = $db->prepare("SELECT 'x', ?");
    $ask->execute([$_GET['text']]);
    echo json_encode([(int) $number, $ask->fetch(PDO::FETCH_NUM)[1]]);
})) {
}
