<?php
/**
 * One process, all connections in one socket_select(): a client that says nothing costs nothing. Connections are kept.
 * select() knows descriptors below 1024 only; further connections are closed.
 *
 *     php select.php PORT HANDLER
 */

declare(strict_types=1);

require __DIR__.'/http.php';
require __DIR__.'/listen.php';
require __DIR__.'/connection.php';

const MOST = 1000;

[, $port, $file] = $argv;
$handler = (require $file)();
$listener = listen((int) $port);
socket_set_nonblock($listener);
/** @var array<int, Connection> $connections */
$connections = [];
while (true) {
    $read = ['listener' => $listener];
    $write = [];
    foreach ($connections as $id => $connection) {
        $read[$id] = $connection->socket;
        if ($connection->waitsToWrite()) {
            $write[$id] = $connection->socket;
        }
    }
    $except = null;
    if (@socket_select($read, $write, $except, null) === false) {
        continue; // a signal
    }
    if (isset($read['listener'])) {
        while ($socket = @socket_accept($listener)) {
            if (count($connections) < MOST) {
                $connections[spl_object_id($socket)] = new Connection($socket);
            } else {
                socket_close($socket);
            }
        }
        unset($read['listener']);
    }
    foreach ($read + $write as $id => $_) {
        if (!$connections[$id]->advance($handler)) {
            unset($connections[$id]);
        }
    }
}
