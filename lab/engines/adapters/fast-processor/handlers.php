<?php
/**
 * The processes that have booted: they accept from one unix socket, each answers one request at a time. The parent replaces
 * those that die.
 *
 *     php handlers.php SOCKET HANDLER WORKERS
 */

declare(strict_types=1);

require __DIR__.'/exchange.php';

[, $path, $file, $workers] = $argv;
$context = stream_context_create(['socket' => ['backlog' => 4096]]);
$listener = stream_socket_server("unix://$path", $code, $message, STREAM_SERVER_BIND | STREAM_SERVER_LISTEN, $context);
$running = [];
pcntl_async_signals(true);
// Without SA_RESTART, so that pcntl_wait() below comes back for it.
pcntl_signal(SIGTERM, static function () use (&$running, $path): void {
    @unlink($path);
    foreach ($running as $pid => $_) {
        posix_kill($pid, SIGTERM);
    }
    exit(0);
}, false);
while (true) {
    while (count($running) < (int) $workers) {
        $pid = pcntl_fork();
        if ($pid === 0) {
            pcntl_signal(SIGTERM, SIG_DFL);
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
        }
        $running[$pid] = true;
    }
    unset($running[pcntl_wait($status)]);
}
