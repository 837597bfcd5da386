<?php
/**
 * PHP-PM's way to a workload's handler: put before its scripts (auto_prepend_file), it makes the class known that `--bridge` names.
 * `--bootstrap` is the handler's file.
 */

declare(strict_types=1);

spl_autoload_register(static function (string $class): void {
    if ($class === 'Lab\Bridge') {
        require __DIR__.'/Bridge.php';
    }
});
