<?php

declare(strict_types=1);

namespace Composer\Autoload;

/** In place of Composer's: with it Symfony writes a list for OPcache's preloading beside its compiled container. */
final class ClassLoader
{
    /** @param array<class-string, string> $map */
    public function __construct(private array $map)
    {
    }

    public function loadClass(string $class): void
    {
        if (isset($this->map[$class])) {
            require $this->map[$class];
        }
    }

    public function findFile(string $class): string|false
    {
        return $this->map[$class] ?? false;
    }

    /** @return array<class-string, string> */
    public function getClassMap(): array
    {
        return $this->map;
    }

    /** @return array<string, list<string>> as Symfony asks when a class was not found */
    public function getPrefixes(): array
    {
        return [];
    }

    /** @return array<string, list<string>> */
    public function getPrefixesPsr4(): array
    {
        return [];
    }
}
