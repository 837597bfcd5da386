<?php

declare(strict_types=1);

namespace Composer;

/** In place of the one that Composer 2 makes, which Symfony 6 asks whether a package is one for development only. */
final class InstalledVersions
{
    public static function isInstalled(string $package, bool $withDev = true): bool
    {
        return false;
    }

    /** @return array{name: string} */
    public static function getRootPackage(): array
    {
        return ['name' => 'hayate/lab'];
    }
}
