<?php
/** Several processes of a server whose own loop is one process. */

declare(strict_types=1);

/**
 * Runs $serve in $count processes, replaces those that die, and ends them on SIGTERM. Event loops open a listener each with SO_REUSEPORT,
 * so that the kernel spreads connections over them. A single process is this one.
 *
 * @param callable(): void $serve
 */
function processes(int $count, callable $serve): void
{
    if ($count === 1) {
        $serve();

        return;
    }
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
        while (count($running) < $count) {
            $pid = pcntl_fork();
            if ($pid === 0) {
                pcntl_signal(SIGTERM, SIG_DFL);
                $serve();
                exit(1);
            }
            $running[$pid] = true;
        }
        unset($running[pcntl_wait($status)]);
    }
}
