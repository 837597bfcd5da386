<?php

declare(strict_types=1);

use Composer\Autoload\ClassLoader;

require_once __DIR__.'/ClassLoader.php';

/** By this name Symfony finds out where autoload.php lies. */
final class ComposerAutoloaderInitPinboard
{
    private static ClassLoader $loader;

    /** @param array<class-string, string> $map */
    public static function getLoader(array $map = []): ClassLoader
    {
        return self::$loader ??= new ClassLoader($map);
    }
}
