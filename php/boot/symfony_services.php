<?php

declare(strict_types=1);

namespace Hayate\Boot;

use Symfony\Component\DependencyInjection\Container;
use Symfony\Component\DependencyInjection\ContainerInterface;
use Symfony\Component\EventDispatcher\EventDispatcher;

/**
 * Makes services of Symfony's own before the requests that all need them: its listeners, and Twig.
 *
 * A warm-up request shows which those are. Its own container is thrown away; in the one that requests are rewound to, a
 * service is made beforehand if in the other it led, by whatever it held, to objects of Symfony and its libraries only.
 * Never one that leads to an object of the application or of anybody else: their constructors may look for the request,
 * the visitor or the time, and there is none yet. Nor one for which the container has made and kept such an object on the
 * way (a factory), or a value that may be another one for each request (`%env(…)%`, see SymfonyEnv).
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

    /** @var array<string, array<int, array<int, class-string>>> by event, priority and place in the dispatcher's list */
    private array $listeners = [];
    private bool $twig = false;
    /** @var array<string, true> what is not for all, by the names that look() gives */
    private array $notForAll = [];
    /** @var array<class-string, bool> */
    private array $trusted = [];

    private bool $enabled = true;
    /** Whether the container that services are being made in has more than what any request may get. */
    private bool $spoilt = false;

    /** Looks at what a request has made. */
    public function observe(ContainerInterface $container): void
    {
        $this->attempt(function () use ($container): void {
            $dispatcher = $container->get('event_dispatcher');
            if (EventDispatcher::class === \get_class($dispatcher)) {
                $this->look($container, $dispatcher);
            }
        });
    }

    /**
     * Makes them in a container that has handled nothing. False: that one is in doubt now, and the next one is to be tried;
     * what brought the doubt is made there no more.
     */
    public function make(ContainerInterface $container): bool
    {
        $this->spoilt = false;

        return $this->attempt(fn () => $this->makeAll($container)) && !$this->spoilt;
    }

    /** What goes wrong here costs time, no more. */
    private function attempt(callable $work): bool
    {
        try {
            if ($this->enabled) {
                $work();
            }

            return true;
        } catch (\Throwable $error) {
            error_log('Each request makes all of its services by itself: '.$error->getMessage());

            return $this->enabled = false;
        }
    }

    private function look(ContainerInterface $container, EventDispatcher $dispatcher): void
    {
        $made = [];
        foreach (self::listeners($dispatcher) as [$event, $priority, $place, $listener]) {
            if (!$listener instanceof \Closure) {
                $this->listeners[$event] ??= [];
                $made["$event\n$priority\n$place"] = $listener;
            }
        }
        if ($container->initialized(self::TWIG)) {
            $made[self::TWIG] = $container->get(self::TWIG);
        }
        foreach (array_diff_key($this->unmixed($made, $container), $this->notForAll) as $name => $service) {
            if (self::TWIG === $name) {
                $this->twig = true;
            } else {
                [$event, $priority, $place] = explode("\n", $name);
                $this->listeners[$event][(int) $priority][(int) $place] = \get_class($service);
            }
        }
    }

    /** @throws \LogicException when this container is made otherwise than the one that was looked at */
    private function makeAll(ContainerInterface $container): void
    {
        if ($this->twig) {
            $this->twig = $this->isForAll(self::TWIG, $container, static fn (): object => $container->get(self::TWIG));
        }
        if ([] === $this->listeners) {
            return;
        }
        $wanted = $this->listeners;
        $isForAll = fn (string $name, callable $make): bool => $this->isForAll($name, $container, $make);
        // The dispatcher's own list says how to make each; by its methods one gets all or none.
        \Closure::bind(function () use ($wanted, $isForAll): void {
            foreach ($wanted as $event => $priorities) {
                foreach ($priorities as $priority => $places) {
                    foreach ($places as $place => $class) {
                        $listener = &$this->listeners[$event][$priority][$place];
                        if (!\is_array($listener) || !($listener[0] ?? null) instanceof \Closure || 2 < \count($listener)) {
                            throw new \LogicException("$class does not listen to $event where it did before");
                        }
                        $make = $listener[0];
                        $isForAll("$event\n$priority\n$place", static function () use (&$listener, $make): void {
                            $listener[0] = $make();
                        });
                        $listener[1] ??= '__invoke';
                        if ($class !== \get_class($listener[0])) {
                            throw new \LogicException(\get_class($listener[0])." listens to $event where $class did before");
                        }
                        unset($listener);
                    }
                }
                if (method_exists($this, 'optimizeListeners')) {
                    $this->optimizeListeners($event);
                }
            }
        }, $container->get('event_dispatcher'), EventDispatcher::class)();
        $this->listeners = self::without($this->listeners, $this->notForAll);
        if (!$this->spoilt && [] !== $asked = SymfonyEnv::ofRequests($container)) {
            throw new \LogicException(implode(', ', $asked).' may be another value for each request');
        }
    }

    /** Makes one. False: other objects than trusted ones were made for it, or values resolved that may be a request's. */
    private function isForAll(string $name, ContainerInterface $container, callable $make): bool
    {
        $doubts = fn (): array => [...SymfonyEnv::ofRequests($container), ...$this->foreignIn($container)];
        $before = $doubts();
        $make();
        if ([] === array_diff($doubts(), $before)) {
            return true;
        }
        $this->notForAll[$name] = $this->spoilt = true;

        return false;
    }

    /**
     * @param array<string, array<int, array<int, class-string>>> $listeners
     * @param array<string, true>                                 $names
     *
     * @return array<string, array<int, array<int, class-string>>>
     */
    private static function without(array $listeners, array $names): array
    {
        foreach ($names as $name => $_) {
            if (self::TWIG !== $name) {
                [$event, $priority, $place] = explode("\n", $name);
                unset($listeners[$event][(int) $priority][(int) $place]);
            }
        }

        return $listeners;
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
