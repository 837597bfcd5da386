<?php
/*
 * What Composer would write. Debian's packages bring an autoload file each, some eighty, which are asked one after the other for each
 * class. bin/build writes a class map from them, as `composer dump-autoload --classmap-authoritative` does, so that finding a class
 * costs what it costs in production; and Octane is added if the environment says where it is.
 */

declare(strict_types=1);

namespace App\Autoload;

const DEBIAN = '/usr/share/php/Illuminate/autoload.php';
const CLASS_MAP = __DIR__.'/classes.php';

/** @return array{classes: array<class-string, string>, files: list<string>} the file of each class, and what is loaded in any case */
function found(): array
{
    $classes = [];
    // They make their lists when they are first asked.
    class_exists('App\\Autoload\\Nothing');
    foreach (array_filter(spl_autoload_functions(), static fn (mixed $loader): bool => $loader instanceof \Closure) as $loader) {
        $loader = new \ReflectionFunction($loader);
        // By names in lower case, below the directory of the autoload file.
        foreach ($loader->getStaticVariables()['classes'] ?? [] as $file) {
            $file = \dirname($loader->getFileName()).$file;
            $classes += is_file($file) ? array_fill_keys(declared_in($file), $file) : [];
        }
    }
    $app = new \RecursiveIteratorIterator(new \RecursiveDirectoryIterator(\dirname(__DIR__).'/app', \FilesystemIterator::SKIP_DOTS));
    foreach ($app as $file) {
        $classes += array_fill_keys(declared_in($file->getPathname()), $file->getPathname());
    }
    ksort($classes);
    $files = array_filter(get_included_files(), static fn (string $file): bool => str_starts_with($file, \dirname(DEBIAN, 2).'/')
        && 'autoload.php' !== basename($file) && !\in_array($file, $classes, true));

    return ['classes' => $classes, 'files' => array_values($files)];
}

/** @return list<class-string> */
function declared_in(string $file): array
{
    [$names, $namespace, $before] = [[], '', null];
    $tokens = array_values(array_filter(\PhpToken::tokenize((string) file_get_contents($file)), static fn (\PhpToken $token): bool => !$token->isIgnorable()));
    foreach ($tokens as $at => $token) {
        if ($token->is(T_NAMESPACE) && $tokens[$at + 1]->is([T_STRING, T_NAME_QUALIFIED])) {
            $namespace = $tokens[$at + 1]->text.'\\';
        } elseif ($token->is([T_CLASS, T_INTERFACE, T_TRAIT, T_ENUM]) && !$before?->is([T_DOUBLE_COLON, T_NEW]) && $tokens[$at + 1]->is(T_STRING)) {
            $names[] = $namespace.$tokens[$at + 1]->text;
        }
        $before = $token;
    }

    return $names;
}

if (is_file(CLASS_MAP)) {
    ['classes' => $classes, 'files' => $files] = require CLASS_MAP;
    spl_autoload_register(static function (string $class) use ($classes): void {
        if (isset($classes[$class])) {
            require $classes[$class];
        }
    });
    array_map(static fn (string $file): mixed => require_once $file, $files);
} else {
    require_once DEBIAN;
    spl_autoload_register(static function (string $class): void {
        $file = \dirname(__DIR__).'/app/'.strtr(substr($class, 4), '\\', '/').'.php';
        if (str_starts_with($class, 'App\\') && is_file($file)) {
            require $file;
        }
    });
}
$octane = getenv('BLOG_OCTANE') ?: '';
if ($octane !== '') {
    require_once $octane;
}
