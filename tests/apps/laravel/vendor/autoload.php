<?php

/**
 * In place of the one that Composer would make. Debian's packages bring an autoload file each, which the framework's one
 * loads all; what is added here is the application's own classes.
 */

declare(strict_types=1);

require_once '/usr/share/php/Illuminate/autoload.php';

spl_autoload_register(static function (string $class): void {
    foreach (['App\\' => 'app/', 'Database\\Seeders\\' => 'database/seeders/'] as $prefix => $directory) {
        $file = dirname(__DIR__).'/'.$directory.strtr(substr($class, strlen($prefix)), '\\', '/').'.php';
        if (str_starts_with($class, $prefix) && is_file($file)) {
            require $file;
        }
    }
});
