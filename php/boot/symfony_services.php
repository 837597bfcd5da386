<?php

declare(strict_types=1);

namespace Hayate\Boot;

use Symfony\Component\DependencyInjection\Container;
use Symfony\Component\DependencyInjection\ContainerInterface;
use Symfony\Component\EventDispatcher\EventDispatcher;

/**
 * Makes services of Symfony's own before the requests that all need them: its listeners, and Twig.
 *
 * A warm-up request, in a process of its own, shows which those are. In the container that requests are rewound to, a
 * service is made beforehand if in the other process it led, by whatever it held, to objects of Symfony and its libraries only.
 * Never one that leads to an object of the application or of anybody else: their constructors may look for the request,
 * the visitor or the time, and there is none yet. Nor one for which the container makes and keeps such an object on the
 * way (a factory), or a value that may be another one for each request (`%env(…)%`, see SymfonyEnv): each is tried out in
 * another process before.
 */
final class SymfonyServices
{
    /**
     * Whose constructors look for no request and note no time. Monolog's processors are left out: one makes an id for each
     * request. Compiled templates (`__TwigTemplate_…`) lead to Twig only.
     */
    private const TRUSTED = [
        'Symfony\\Bridge\\', 'Symfony\\Bundle\\', 'Symfony\\Component\\', 'Symfony\\Contracts\\', 'Twig\\', '__TwigTemplate_',
        'Monolog\\Formatter\\', 'Monolog\\Handler\\', 'Monolog\\Logger', 'Psr\\Log\\',
    ];
    /** PHP's own classes that lead only where this class can follow. Not among them: the time, connections, files. */
    private const CONTAINERS = [\ArrayIterator::class, \ArrayObject::class, \Closure::class, \SplObjectStorage::class, \WeakMap::class];
    /** The name under which everybody may ask the container for Twig; later releases than Symfony 5.4 have none. */
    private const TWIG = '.container.private.twig';

    /** @var array<class-string, bool> */
    private array $trusted = [];

    /**
     * What a request has made that can be made ahead of all.
     *
     * @return list<string> a name each: of an event, a priority, a place in the dispatcher's list, and the listener's class; or Twig's
     */
    public function observe(ContainerInterface $container): array
    {
        $dispatcher = $container->get('event_dispatcher');
        if (EventDispatcher::class !== \get_class($dispatcher)) {
            return [];
        }
        $made = $events = [];
        foreach (self::listeners($dispatcher) as [$event, $priority, $place, $listener]) {
            if (!$listener instanceof \Closure) {
                $made[implode("\n", [$event, $priority, $place, \get_class($listener)])] = $listener;
                $events[$event] = true;
            }
        }
        if ($container->initialized(self::TWIG)) {
            $made[self::TWIG] = $container->get(self::TWIG);
        }

        return array_map(strval(...), [...array_keys($events), ...array_keys($this->unmixed($made, $container))]);
    }

    /**
     * Makes them in a container that has handled nothing.
     *
     * @param list<string> $names as observe() has given them; one that is made otherwise here is left to requests
     */
    public function make(ContainerInterface $container, array $names): void
    {
        $events = array_filter($names, static fn (string $name): bool => self::TWIG !== $name && !str_contains($name, "\n"));
        // Twig first: listeners may hold it.
        $services = array_values(array_diff($names, $events));
        usort($services, static fn (string $a, string $b): int => (self::TWIG === $b) <=> (self::TWIG === $a));
        // One that is not ends its process: with what it leaves in the container nothing tells of the next.
        $good = came_back(function (int $i) use ($container, $services): bool {
            $good = false;
            // A configurator or a factory of the application's own may go by the request.
            $runs = runs_own_code(function () use ($container, $services, $i, &$good): void {
                $good = $this->isForAll($container, $services[$i]);
            });

            return ($good && !$runs) || exit;
        }, \count($services), 5);
        foreach ($good as $i) {
            if (!$this->isForAll($container, $services[$i])) {
                not_for_all('Symfony makes '.strtr($services[$i], "\n", ' ').' of what may be another value for each request');
            }
        }
        $dispatcher = $container->get('event_dispatcher');
        if (method_exists($dispatcher, 'optimizeListeners')) {
            $optimize = \Closure::bind(fn (string $event) => $this->optimizeListeners($event), $dispatcher, EventDispatcher::class);
            array_map($optimize, $events);
        }
    }

    /** Makes one. False: other objects than trusted ones were made for it, or values resolved that may be a request's. */
    private function isForAll(ContainerInterface $container, string $name): bool
    {
        $doubts = fn (): array => [...SymfonyEnv::ofRequests($container), ...$this->foreignIn($container)];
        $before = $doubts();
        try {
            self::TWIG === $name ? $container->get($name) : self::makeListener($container->get('event_dispatcher'), ...explode("\n", $name));
        } catch (\Throwable) {
            return false;
        }

        return [] === array_diff($doubts(), $before);
    }

    /** @throws \LogicException when another one listens there, or it has been made */
    private static function makeListener(EventDispatcher $dispatcher, string $event, string $priority, string $place, string $class): void
    {
        // The dispatcher's own list says how to make each; by its methods one gets all or none.
        \Closure::bind(function () use ($event, $priority, $place, $class): void {
            $listener = $this->listeners[$event][(int) $priority][(int) $place] ?? null;
            if (!\is_array($listener) || !($listener[0] ?? null) instanceof \Closure || 2 < \count($listener)) {
                throw new \LogicException("$class does not listen to $event where it did");
            }
            $made = $listener[0]();
            if ($class !== \get_class($made)) {
                throw new \LogicException(\get_class($made)." listens to $event where $class did");
            }
            $this->listeners[$event][(int) $priority][(int) $place] = [$made, $listener[1] ?? '__invoke'];
        }, $dispatcher, EventDispatcher::class)();
    }

    /** @return list<string> under what names a container has objects that are not trusted */
    private function foreignIn(ContainerInterface $container): array
    {
        $made = \Closure::bind(fn (): array => $this->services + $this->privates, $container, Container::class)();
        $foreign = array_filter($made, fn ($one): bool => \is_object($one) && $one !== $container && !$this->trusts($one, $container));

        return array_map(strval(...), array_keys($foreign));
    }

    /** @return \Generator<array{string, int, int, object}> event, priority, place, and the listener, or what will make it */
    private static function listeners(EventDispatcher $dispatcher): \Generator
    {
        $all = \Closure::bind(fn (): array => $this->listeners, $dispatcher, EventDispatcher::class)();
        foreach ($all as $event => $priorities) {
            foreach ($priorities as $priority => $places) {
                foreach ($places as $place => $listener) {
                    if (\is_array($listener) && \is_object($listener[0] ?? null)) {
                        yield [$event, $priority, $place, $listener[0]];
                    }
                }
            }
        }
    }

    /**
     * Those that lead to nobody else's objects. What container, kernel and dispatcher lead to does not count: each of them
     * makes it when it is asked for.
     *
     * @param array<string, object> $services
     *
     * @return array<string, object>
     */
    private function unmixed(array $services, ContainerInterface $container): array
    {
        $seen = [];
        foreach ([$container, $container->get('kernel'), $container->get('event_dispatcher')] as $known) {
            $seen[spl_object_id($known)] = true;
        }
        $holders = $foreign = [];
        $waiting = array_values($services);
        while ($object = array_pop($waiting)) {
            $id = spl_object_id($object);
            if (isset($seen[$id])) {
                continue;
            }
            $seen[$id] = true;
            if (!$this->trusts($object, $container)) {
                $foreign[] = $id;
                continue;
            }
            foreach (self::held($object) as $held) {
                $holders[spl_object_id($held)][] = $id;
                $waiting[] = $held;
            }
        }
        $mixed = [];
        while (null !== $id = array_pop($foreign)) {
            if (!isset($mixed[$id])) {
                $mixed[$id] = true;
                array_push($foreign, ...$holders[$id] ?? []);
            }
        }

        return array_filter($services, static fn (object $service): bool => !isset($mixed[spl_object_id($service)]));
    }

    private function trusts(object $object, ContainerInterface $container): bool
    {
        $class = \get_class($object);
        if (isset($this->trusted[$class])) {
            return $this->trusted[$class];
        }
        $generated = substr(\get_class($container), 0, (int) strrpos(\get_class($container), '\\') + 1);
        // An anonymous class bears its parent's name, wherever it is written.
        $trusted = !str_contains($class, '@anonymous');
        foreach ([$class => $class] + class_parents($object) as $one) {
            $internal = (new \ReflectionClass($one))->isInternal();
            $trusted = $trusted && ($internal
                ? \in_array($one, self::CONTAINERS, true)
                : self::begins($one, [...self::TRUSTED, $generated]));
        }

        return $this->trusted[$class] = $trusted;
    }

    /** @param list<string> $beginnings */
    private static function begins(string $name, array $beginnings): bool
    {
        foreach ($beginnings as $beginning) {
            if ('' !== $beginning && str_starts_with($name, $beginning)) {
                return true;
            }
        }

        return false;
    }

    /** @return list<object> */
    private static function held(object $object): array
    {
        $values = get_mangled_object_vars($object);
        if ($object instanceof \Closure) {
            $closure = new \ReflectionFunction($object);
            $values = [$closure->getClosureThis(), $closure->getStaticVariables()];
        } elseif ($object instanceof \SplObjectStorage || $object instanceof \WeakMap) {
            foreach ($object as $key => $value) {
                array_push($values, $key, $value, $object[$object instanceof \WeakMap ? $key : $value]);
            }
        }
        $objects = [];
        array_walk_recursive($values, static function ($value) use (&$objects): void {
            if (\is_object($value)) {
                $objects[] = $value;
            }
        });

        return $objects;
    }
}
