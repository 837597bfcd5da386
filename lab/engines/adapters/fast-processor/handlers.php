<?php
/**
 * The processes that have booted: they accept from one unix socket, each answers one request at a time.
 *
 *     php handlers.php SOCKET HANDLER WORKERS
 */

declare(strict_types=1);

require __DIR__.'/exchange.php';
require dirname(__DIR__).'/processes.php';

[, $path, $file, $workers] = $argv;
$context = stream_context_create(['socket' => ['backlog' => 4096]]);
$listener = stream_socket_server("unix://$path", $code, $message, STREAM_SERVER_BIND | STREAM_SERVER_LISTEN, $context);
processes((int) $workers, static function () use ($listener, $file): void {
    // Booted after the fork: connections to a database must not be shared.
    $handler = (require $file)();
    while (true) {
        $connection = @stream_socket_accept($listener, -1);
        if ($connection && ($target = receive($connection)) !== null) {
            send($connection, $handler($target));
        }
        // The other end keeps the last reference otherwise until the next request comes.
        $connection && fclose($connection);
    }
});
