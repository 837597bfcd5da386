<?php

declare(strict_types=1);

namespace Hayate\Boot;

use Symfony\Component\DependencyInjection\Container;
use Symfony\Component\DependencyInjection\ContainerInterface;
use Symfony\Component\DependencyInjection\EnvVarLoaderInterface;
use Symfony\Component\DependencyInjection\EnvVarProcessor;

/**
 * What a container has resolved of `%env(…)%`, and whether that may be another thing for each request.
 *
 * Values of them are strings by the time a service has them, so nothing in the service tells where they come from. The
 * container does: it keeps each by its name, `default:fallback:REQUEST_URI`. In doubt a value is one of a request.
 */
final class SymfonyEnv
{
    /**
     * Symfony's own ways to read a value that give the same each time. Not among them: `require` runs a file, `shuffle`
     * draws.
     */
    private const STATIC = [
        'base64', 'bool', 'const', 'csv', 'default', 'defined', 'enum', 'file', 'float', 'int', 'json', 'key', 'not', 'query_string',
        'resolve', 'string', 'trim', 'url', 'urlencode',
    ];
    /** Those of them that are followed by a word of their own: `key:host:json:SETTINGS`. */
    private const WITH_WORD = ['default', 'enum', 'key'];

    /** @return list<string> those that are not the same for all requests, as one would write them */
    public static function ofRequests(ContainerInterface $container): array
    {
        // Neither a container of another kind nor one of a release to come that keeps them elsewhere.
        if (!$container instanceof Container || !property_exists(Container::class, 'envCache')
            || Container::class !== (new \ReflectionMethod($container, 'getEnv'))->class) {
            return ['%env(…)% by a '.get_debug_type($container)];
        }
        $names = array_keys((array) self::read($container, Container::class, 'envCache'));
        $found = [];
        foreach ($names as $name) {
            if (!self::isStatic((string) $name, $container)) {
                $found[] = "%env($name)%";
            }
        }
        foreach (self::read($container, Container::class, 'services') + self::read($container, Container::class, 'privates') as $made) {
            if ($made instanceof EnvVarLoaderInterface && !self::loadsSecrets($made)) {
                $found[] = 'what '.get_debug_type($made).' loads';
            }
        }

        return $found;
    }

    /** Whether the kernel has asked what FrameworkBundle has it ask where the project's configuration says nothing (since 7.2). */
    public static function asksForTrusted(ContainerInterface $container): bool
    {
        return $container instanceof Container && property_exists(Container::class, 'envCache')
            && [] !== preg_grep('/\bdefault::SYMFONY_TRUST/', array_keys((array) self::read($container, Container::class, 'envCache')));
    }

    private static function isStatic(string $name, Container $container): bool
    {
        $parts = explode(':', $name);
        $variable = array_pop($parts);
        if (is_of_request($variable)) {
            return false;
        }
        // A name without a way is read as `string`.
        for ($parts = [...$parts, 'string']; null !== $way = array_shift($parts);) {
            if (!\in_array($way, self::STATIC, true) || EnvVarProcessor::class !== \get_class(self::processor($container, $way))) {
                return false;
            }
            if (\in_array($way, self::WITH_WORD, true) && \count($parts) > 1) {
                array_shift($parts);
            }
        }

        return true;
    }

    /** What has read a value of this kind; it is there, since it has. */
    private static function processor(Container $container, string $way): object
    {
        $processors = $container->get('container.env_var_processors_locator');

        return $processors->has($way) ? $processors->get($way) : new EnvVarProcessor($container);
    }

    /** Whether what gives variables that the environment has not is Symfony's own for its secrets. */
    private static function loadsSecrets(object $loader): bool
    {
        // It keeps what another one loads.
        if (str_starts_with(\get_class($loader), 'Symfony\\Component\\DependencyInjection\\') && property_exists($loader, 'envVarLoader')) {
            $loader = self::read($loader, \get_class($loader), 'envVarLoader');
        }

        return str_starts_with(\get_class($loader), 'Symfony\\Bundle\\FrameworkBundle\\Secrets\\');
    }

    private static function read(object $object, string $class, string $property): mixed
    {
        return (new \ReflectionProperty($class, $property))->getValue($object);
    }
}
