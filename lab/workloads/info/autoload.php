<?php
/*
 * What Composer would write: Debian has Symfony below /usr/share/php, a class to a file. bin/build writes the class map, as
 * `composer dump-autoload --classmap-authoritative` does, so that finding a class costs what it costs in production.
 */

declare(strict_types=1);

namespace App;

const DEBIAN = '/usr/share/php/';
const CLASS_MAP = __DIR__.'/var/classes.php';

/** @return array<class-string, string> the file of each class, Symfony's and the application's */
function class_map(): array
{
    $map = ['App\Kernel' => __DIR__.'/src/Kernel.php', 'App\InfoController' => __DIR__.'/src/InfoController.php'];
    foreach (['Psr', 'Symfony'] as $folder) {
        $tree = new \RecursiveDirectoryIterator(DEBIAN.$folder, \FilesystemIterator::SKIP_DOTS);
        foreach (new \RecursiveIteratorIterator($tree) as $file) {
            $name = substr($file->getPathname(), \strlen(DEBIAN));
            if (preg_match('~^(?:[A-Z]\w*/)+[A-Z]\w*\.php$~', $name)) {
                $map[strtr(substr($name, 0, -4), '/', '\\')] = $file->getPathname();
            }
        }
    }

    return $map;
}

$map = is_file(CLASS_MAP) ? require CLASS_MAP : class_map();
spl_autoload_register(static function (string $class) use ($map): void {
    if (isset($map[$class])) {
        require $map[$class];
    }
});
require_once DEBIAN.'Symfony/Contracts/Deprecation/function.php';
require_once DEBIAN.'Symfony/Component/String/Resources/functions.php';
require_once DEBIAN.'Symfony/Component/Translation/Resources/functions.php';
