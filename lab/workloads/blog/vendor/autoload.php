<?php
/*
 * In place of the one that Composer would make. Debian's packages bring an autoload file each, which the framework's one loads
 * all; what is added are the application's own classes, and Octane if the environment says where it is.
 */

declare(strict_types=1);

require_once '/usr/share/php/Illuminate/autoload.php';

spl_autoload_register(static function (string $class): void {
    $file = dirname(__DIR__).'/app/'.strtr(substr($class, 4), '\\', '/').'.php';
    if (str_starts_with($class, 'App\\') && is_file($file)) {
        require $file;
    }
});
$octane = getenv('BLOG_OCTANE') ?: '';
if ($octane !== '') {
    require_once $octane;
}
