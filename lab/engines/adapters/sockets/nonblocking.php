<?php
/**
 * One process, sockets that do not block, and no select(): every round asks each connection whether it has something. Costs a call
 * for each connection and round, and a processor even when idle, but for the short sleep after a round without work.
 *
 *     php nonblocking.php PORT HANDLER
 */

declare(strict_types=1);

require __DIR__.'/http.php';
require __DIR__.'/listen.php';
require __DIR__.'/connection.php';

const IDLE_MICROSECONDS = 100;

[, $port, $file] = $argv;
$served = 0;
$boot = (require $file)();
$handler = static function (string $target) use ($boot, &$served): array {
    ++$served;

    return $boot($target);
};
$listener = listen((int) $port);
socket_set_nonblock($listener);
/** @var array<int, Connection> $connections */
$connections = [];
while (true) {
    $served = 0;
    while ($socket = @socket_accept($listener)) {
        $connections[spl_object_id($socket)] = new Connection($socket);
    }
    foreach ($connections as $id => $connection) {
        if (!$connection->advance($handler)) {
            unset($connections[$id]);
        }
    }
    if ($served === 0) {
        usleep(IDLE_MICROSECONDS);
    }
}
