<?php

declare(strict_types=1);

namespace Hayate\Boot;

use Illuminate\Container\Container;
use Illuminate\Contracts\Foundation\Application;

/** Services of Laravel's own that may be made before there is a request: nobody's code but the framework's has a part in them. */
final class EarlyServices
{
    /** Who hears of a service that is made, of each or by its name. */
    private const CALLBACKS = ['beforeResolvingCallbacks', 'resolvingCallbacks', 'afterResolvingCallbacks'];
    private const CALLBACKS_OF_ALL = ['globalBeforeResolvingCallbacks', 'globalResolvingCallbacks', 'globalAfterResolvingCallbacks'];

    public static function is_frameworks(Application $app, string $service): bool
    {
        $provider = method_exists($app, 'getDeferredServices') ? $app->getDeferredServices()[$service] ?? null : null;
        if (null !== $provider) {
            if (!str_starts_with($provider, 'Illuminate\\')) {
                return false;
            }
            $app->loadDeferredProvider($service);
        }
        $bound = $app->getBindings()[$app->getAlias($service)]['concrete'] ?? null;
        if (!$bound instanceof \Closure || !self::is_of_framework($bound)) {
            return false;
        }
        $heard = array_merge(...array_map(static fn (string $of): array => self::read($app, $of), self::CALLBACKS_OF_ALL));
        foreach (self::CALLBACKS as $of) {
            // By a name, an alias of it or a class; whose they are is known when it has been made.
            foreach (self::read($app, $of) as $name => $callbacks) {
                if ($name === $service || $app->getAlias($name) === $app->getAlias($service)) {
                    $heard = array_merge($heard, $callbacks);
                }
            }
        }
        $heard = array_merge($heard, self::read($app, 'extenders')[$app->getAlias($service)] ?? []);

        return [] === array_filter($heard, static fn (\Closure $closure): bool => !self::is_of_framework($closure));
    }

    private static function is_of_framework(\Closure $closure): bool
    {
        return str_starts_with((new \ReflectionFunction($closure))->getClosureScopeClass()?->name ?? '', 'Illuminate\\');
    }

    private static function read(Application $app, string $property): array
    {
        return property_exists(Container::class, $property) ? (array) (new \ReflectionProperty(Container::class, $property))->getValue($app) : [];
    }
}
