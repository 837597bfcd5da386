<?php
/*
 * What Composer would write: Debian has Symfony and Twig below /usr/share/php, a class to a file. bin/build writes the class map, as
 * `composer dump-autoload --classmap-authoritative` does, so that finding a class costs what it costs in production.
 */

declare(strict_types=1);

namespace App;

const DEBIAN = '/usr/share/php/';
const CLASS_MAP = __DIR__.'/classes.php';

/** @return array<class-string, string> the file of each class: Symfony's and Twig's (as far as they are installed), the application's */
function class_map(): array
{
    $map = [];
    $places = ['Psr\\' => DEBIAN.'Psr/', 'Symfony\\' => DEBIAN.'Symfony/', 'Twig\\' => DEBIAN.'Twig/', 'App\\' => dirname(__DIR__).'/src/'];
    foreach (array_filter($places, is_dir(...)) as $prefix => $folder) {
        $tree = new \RecursiveDirectoryIterator($folder, \FilesystemIterator::SKIP_DOTS);
        foreach (new \RecursiveIteratorIterator($tree) as $file) {
            $name = substr($file->getPathname(), \strlen($folder));
            if (preg_match('~^(?:[A-Z]\w*/)*[A-Z]\w*\.php$~', $name)) {
                $map[$prefix.strtr(substr($name, 0, -4), '/', '\\')] = $file->getPathname();
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
// Where Composer has its list of packages; Debian's are no packages of Composer's.
require_once __DIR__.'/composer/InstalledVersions.php';
// Its name is no path: Composer finds it by a class map. Symfony 5.4 has none.
if (is_file($wrapper = DEBIAN.'Symfony/Component/Cache/Traits/ValueWrapper.php')) {
    require_once $wrapper;
}
require_once DEBIAN.'Symfony/Contracts/Deprecation/function.php';
require_once DEBIAN.'Symfony/Component/String/Resources/functions.php';
require_once DEBIAN.'Symfony/Component/Translation/Resources/functions.php';
// Functions of later versions of PHP, which Symfony 7.4 calls, and those of extensions, which Symfony 8.1 calls.
foreach (['Php85', 'Php86', 'DeepClone', 'Time'] as $polyfill) {
    if (is_file($functions = DEBIAN."Symfony/Polyfill/$polyfill/bootstrap.php")) {
        require_once $functions;
    }
}
