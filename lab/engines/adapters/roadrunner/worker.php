<?php
/**
 * A RoadRunner worker in front of a workload's handler.
 *
 *     php worker.php HANDLER [reboot]
 */

declare(strict_types=1);

require __DIR__.'/goridge.php';
require dirname(__DIR__).'/handler.php';

[, $file] = $argv;
$handler = handler($file, ($argv[2] ?? '') === 'reboot');
$server = new Goridge();
while (($target = $server->next()) !== null) {
    try {
        $server->answer(...$handler($target));
    } catch (Throwable $error) {
        $server->error((string) $error);
    }
}
