<?php

/**
 * In place of the one that Composer would make: Debian installs Symfony, Twig and the PSR interfaces below /usr/share/php, one
 * class to a file that is named after it. `bin/build` writes the class map, as `composer dump-autoload --classmap-authoritative`
 * does, so that loading a class costs what it costs in production.
 */

declare(strict_types=1);

namespace App;

const DEBIAN = '/usr/share/php/';

/** @return array<class-string, string> the file of each class that the application can use */
function class_map(): array
{
    $map = [];
    foreach (['' => [DEBIAN, ['Psr', 'Symfony', 'Twig']], 'App\\' => [dirname(__DIR__).'/src/', ['']]] as $prefix => [$base, $directories]) {
        foreach ($directories as $directory) {
            $files = new \RecursiveIteratorIterator(new \RecursiveDirectoryIterator($base.$directory, \FilesystemIterator::SKIP_DOTS));
            foreach ($files as $file) {
                $name = ltrim(substr($file->getPathname(), \strlen($base)), '/');
                if (preg_match('~^(?:[A-Z]\w*/)*[A-Z]\w*\.php$~', $name)) {
                    $map[$prefix.strtr(substr($name, 0, -4), '/', '\\')] = $file->getPathname();
                }
            }
        }
    }

    return $map;
}

$map = is_file(dirname(__DIR__).'/var/classes.php') ? require dirname(__DIR__).'/var/classes.php' : class_map();
require_once __DIR__.'/composer/autoload_real.php';
spl_autoload_register([\ComposerAutoloaderInitPinboard::getLoader($map), 'loadClass']);

// Where Composer has its list of packages; Debian's are no packages of Composer's.
require_once __DIR__.'/composer/InstalledVersions.php';

// Its name is no path: Composer finds it by a class map. Symfony 5.4 has none.
if (is_file($wrapper = DEBIAN.'Symfony/Component/Cache/Traits/ValueWrapper.php')) {
    require_once $wrapper;
}

// What Composer would include for these packages whether or not it is used.
require_once DEBIAN.'Symfony/Contracts/Deprecation/function.php';
require_once DEBIAN.'Symfony/Component/String/Resources/functions.php';
require_once DEBIAN.'Symfony/Component/Translation/Resources/functions.php';
// Functions of later versions of PHP, which Symfony 7.4 calls, and those of extensions, which Symfony 8.1 calls.
foreach (['Php85', 'Php86', 'DeepClone', 'Time'] as $polyfill) {
    if (is_file($functions = DEBIAN."Symfony/Polyfill/$polyfill/bootstrap.php")) {
        require_once $functions;
    }
}
