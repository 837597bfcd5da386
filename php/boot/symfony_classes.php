<?php

declare(strict_types=1);

namespace Hayate\Boot;

use Symfony\Component\HttpKernel\KernelInterface;

/**
 * Loads the classes that Symfony itself lists for OPcache's preloading, before the requests that may need them.
 *
 * The list lies beside the compiled container: services' classes, the files that make them, with 5.4 compiled templates as well, but for
 * what is tagged `container.no_preload`. It follows from the code, and from nothing that a visitor does. Nobody's code runs
 * but that of these files; no service is made.
 */
final class SymfonyClasses
{
    /** All of a warm-up has thirty. */
    private const SECONDS = 5;

    /** Of memory_limit: beyond it the process would end, and with it what the warm-up has done. */
    private const MEMORY = 0.5;

    public static function load(KernelInterface $kernel): void
    {
        // Before 5.2 there is one directory for both.
        $directory = method_exists($kernel, 'getBuildDir') ? $kernel->getBuildDir() : $kernel->getCacheDir();
        [$namespace, $name] = explode('\\', \get_class($kernel->getContainer()).'\\');
        $list = @file_get_contents("$directory/$name.preload.php");
        if (false === $list) {
            return;
        }
        // It is not included: that would load once more what this process has loaded already.
        $line = '~^(?:\$classes\[\] = \'(?<class>[^\']+)\'|require(?:_once)? __DIR__\.\'/(?<file>[^\']+)\.php\');\r?$~m';
        preg_match_all($line, $list, $found, \PREG_SET_ORDER);
        $end = hrtime(true) + self::SECONDS * 1000000000;
        $limit = ini_parse_quantity((string) ini_get('memory_limit'));
        $most = $limit > 0 ? $limit * self::MEMORY : \INF;
        // What is deprecated in them is for the log of a request that uses it.
        set_error_handler(static fn (): bool => true);
        try {
            foreach ($found as $one) {
                if (hrtime(true) > $end || memory_get_usage() > $most) {
                    break;
                }
                self::attempt($directory, $namespace, $one['class'], $one['file'] ?? '');
            }
        } finally {
            restore_error_handler();
        }
    }

    private static function attempt(string $directory, string $namespace, string $class, string $file): void
    {
        try {
            if ('' !== $class) {
                class_exists(str_replace('\\\\', '\\', $class));
            } elseif (str_starts_with($file, "$namespace/")) {
                class_exists(strtr($file, '/', '\\'), false) || require "$directory/$file.php";
            } elseif (str_starts_with($file, 'twig/')) {
                require_once "$directory/$file.php";
            }
        } catch (\Throwable) {
            // It extends what is not installed, for instance. A request that needs it says so.
        }
    }
}
