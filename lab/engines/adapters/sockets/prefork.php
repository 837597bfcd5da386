<?php
/**
 * Several processes that accept from one socket, each like blocking.php: Apache's old model. The parent only replaces those that die.
 *
 *     php prefork.php PORT HANDLER WORKERS
 */

declare(strict_types=1);

require __DIR__.'/http.php';
require __DIR__.'/listen.php';

[, $port, $file, $workers] = $argv;
$listener = listen((int) $port);
$running = [];
pcntl_async_signals(true);
// Without SA_RESTART, so that pcntl_wait() below comes back for it.
pcntl_signal(SIGTERM, static function () use (&$running): void {
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
            while ($client = socket_accept($listener)) {
                serve_once($client, $handler);
            }
            exit(1);
        }
        $running[$pid] = true;
    }
    unset($running[pcntl_wait($status)]);
}
