<?php

/** Loads Windbook\Name from src/Name.php: PSR-4 without Composer, so that the demo runs on a bare PHP. */

declare(strict_types=1);

spl_autoload_register(static function (string $class): void {
    $prefix = 'Windbook\\';
    if (str_starts_with($class, $prefix)) {
        require __DIR__ . '/' . str_replace('\\', '/', substr($class, strlen($prefix))) . '.php';
    }
});
