<?php

declare(strict_types=1);

namespace Hayate\Boot;

use Symfony\Component\HttpKernel\KernelInterface;

/**
 * Loads the classes that Symfony itself lists for OPcache's preloading, before the requests that may need them.
 *
 * The list lies beside the compiled container: services' classes (the project's own are left to requests), the files that make them, with 5.4 compiled templates as well, but for
 * what is tagged `container.no_preload`. It follows from the code, and from nothing that a visitor does. Of these, what is loaded
 * comes from files that declare classes and do nothing else; no service is made. What would end the process (a class that does
 * not fit its interface, an exit) or does not come back is left to the request that needs it: another process loads them first.
 */
final class SymfonyClasses
{
    /** All of a warm-up has thirty. */
    private const SECONDS = 5;

    /** Of memory_limit: beyond it the process would end, and with it what the warm-up has done. */
    private const MEMORY = 0.5;

    /** Where Symfony keeps what it has generated of the project. */
    public static function directory(KernelInterface $kernel): string
    {
        // Before 5.2 there is one directory for both.
        return method_exists($kernel, 'getBuildDir') ? $kernel->getBuildDir() : $kernel->getCacheDir();
    }

    public static function load(KernelInterface $kernel): void
    {
        $directory = self::directory($kernel);
        [$namespace, $name] = explode('\\', \get_class($kernel->getContainer()).'\\');
        $list = @file_get_contents("$directory/$name.preload.php");
        if (false === $list) {
            return;
        }
        // It is not included: that would load once more what this process has loaded already.
        $line = '~^(?:\$classes\[\] = \'(?<class>[^\']+)\'|require(?:_once)? __DIR__\.\'/(?<file>[^\']+)\.php\');\r?$~m';
        preg_match_all($line, $list, $found, \PREG_SET_ORDER);
        $limit = ini_parse_quantity((string) ini_get('memory_limit'));
        $most = $limit > 0 ? $limit * self::MEMORY : \INF;
        $templates = !self::looks_at_templates_anew("$directory/$namespace", $name);
        $attempt = static function (int $i) use ($found, $directory, $namespace, $most, $templates): bool {
            if (memory_get_usage() > $most) {
                return false;
            }
            return self::attempt($directory, $namespace, $found[$i]['class'], $found[$i]['file'] ?? '', $templates);
        };
        load_classes($attempt, \count($found), self::SECONDS);
    }

    /** With `auto_reload` Twig asks whether a template has changed, but only before its class is there. */
    private static function looks_at_templates_anew(string $container, string $name): bool
    {
        foreach (["$container/getTwigService.php", "$container/$name.php"] as $file) {
            if (1 === preg_match('~new \\\\Twig\\\\Environment\([^;]*\'auto_reload\' => (?!false)~i', (string) @file_get_contents($file))) {
                return true;
            }
        }

        return false;
    }

    private static function attempt(string $directory, string $namespace, string $class, string $file, bool $templates): bool
    {
        try {
            if ('' !== $class) {
                return class_exists(str_replace('\\\\', '\\', $class));
            }
            if (str_starts_with($file, "$namespace/")) {
                class_exists(strtr($file, '/', '\\'), false) || require "$directory/$file.php";
            } elseif ($templates && str_starts_with($file, 'twig/')) {
                require_once "$directory/$file.php";
            }
        } catch (\Throwable) {
            // It extends what is not installed, for instance. A request that needs it says so.
        }

        return true;
    }
}
