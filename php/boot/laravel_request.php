<?php

/**
 * The request that a Laravel application has while it boots, before there is one: it answers as the one of Laravel's
 * console does, made from the setting app.url, and notes who asks it something. That goes by what runs, not by names: it
 * does not matter how the request was got, nor whose code asks, the project's or a package's.
 *
 * Macros and handing it on tell nothing of a visitor. Who keeps it is noticed as the boot is over. What it is told would
 * be lost, for each request is another one: so who sets something of it is noted as well.
 */

declare(strict_types=1);

namespace Hayate\Boot;

use Illuminate\Container\Container;
use Illuminate\Contracts\Foundation\Application;
use Illuminate\Http\Request;
use Illuminate\Support\Facades\Facade;

/** Variables that a request may have, or not, by how they begin. */
const AS_OF_REQUEST = '/^(AUTH|CONTENT_|DOCUMENT_|FCGI_|GATEWAY_|HTTP|ORIG_|PATH_|PHP_|QUERY_|REDIRECT_|REMOTE_|REQUEST_|SCRIPT_|SERVER_|SSL_|UNENCODED_|X_)/';

final class EarlyRequest
{
    private const CLASS_NAME = 'Hayate_Boot_Request';

    /** What of a request is public; magic methods go by these. */
    private const BAGS = ['attributes', 'request', 'query', 'server', 'files', 'cookies', 'headers'];
    /**
     * Methods that tell what is the same for all requests as long as nobody has set it, and one that sets what all
     * requests have in common.
     */
    private const FOR_ALL = [
        'instance', 'hasSession', 'getLocale', 'getDefaultLocale', 'getUserResolver', 'getRouteResolver',
        'setFormat', 'getFormat', 'getMimeType',
    ];

    private const ONCE = 'before there is a request, so once for all visitors. To avoid it: do it in a middleware';

    /** Whose methods are the request's own, by how the names of the classes begin. */
    private const OF_REQUESTS = ['Illuminate\\Http\\', 'Symfony\\Component\\HttpFoundation\\', 'Hayate'];

    private static Application $app;
    private static ?Request $answers = null;
    private static bool $notes = false;
    /** Requests have been made. */
    private static bool $served = false;

    /** The application boots from here on. */
    public static function give(Application $app): void
    {
        self::$app = $app;
        self::$answers = null;
        $app->instance('request', self::make());
        self::$notes = true;
    }

    /** The application has booted: nobody may keep the request. */
    public static function take(): void
    {
        $bound = self::$app->make('request');
        self::$notes = false;
        if (!self::$served && was_called('Symfony\\Component\\HttpFoundation\\Request::createFromGlobals')) {
            not_for_all('what runs as it boots makes a request of what PHP has of one (createFromGlobals()), '.self::ONCE);
        }
        self::$served = true;
        if (self::CLASS_NAME !== $bound::class) {
            not_for_all('whether it looks at the request as it boots is not known: what runs then replaces it, by a '.$bound::class.'. To avoid it: do it in a middleware');

            return;
        }
        $early = \WeakReference::create($bound);
        unset($bound);
        Facade::clearResolvedInstance('request');
        // Who is told of each new request, as the request will be: by the framework, and only if need be by others.
        if (self::is_released($early, true)) {
            self::first_to_keepers_alone();
        } elseif (!self::is_released($early, false)) {
            $keeps = self::keeper($early->get()) ?? 'what is made then';
            not_for_all("$keeps keeps the request that is there as the application boots, and would ask it in all requests. To avoid it: ask for request() where it is needed");
        }
    }

    /**
     * The kernel binds a request before the global middleware, and once more behind it. In classic mode the first one is
     * the first of all: callbacks of rebinding() hear of the second alone, and what is made as the application boots has
     * the first. So of that only those hear that replace the early request.
     */
    private static function first_to_keepers_alone(): void
    {
        $app = self::$app;
        $callbacks = self::rebound_callbacks();
        $all = $callbacks->getValue($app)['request'] ?? [];
        $first = array_values(array_filter($all, self::is_keepers(...)));
        $known = \count($first) + 1;
        $first[] = static function () use ($app, $callbacks, $all, $known): void {
            $now = $callbacks->getValue($app);
            $now['request'] = [...$all, ...\array_slice($now['request'], $known)];
            $callbacks->setValue($app, $now);
        };
        $callbacks->setValue($app, ['request' => $first] + $callbacks->getValue($app));
    }

    public static function note(string $what): void
    {
        if (!self::$notes) {
            return;
        }
        self::$notes = false;
        $calls = debug_backtrace(\DEBUG_BACKTRACE_IGNORE_ARGS);
        $framework = \dirname((string) (new \ReflectionClass(Container::class))->getFileName(), 2).'/';
        $by = $named = null;
        foreach ($calls as $i => $call) {
            $class = $calls[$i + 1]['class'] ?? '';
            if (!isset($call['file']) || self::begins($class, self::OF_REQUESTS)) {
                continue;
            }
            $by ??= $call;
            if (!\in_array($by['function'], ['__get', '__set'], true) && $by === $call) {
                $what = $call['function'].'()';
            }
            if (!str_starts_with($call['file'], $framework) && !self::begins($class, ['Illuminate\\', 'Symfony\\']) && __DIR__ !== \dirname($call['file'])) {
                $named = $call;
                break;
            }
        }
        $at = $named ?? $by ?? [];
        not_for_all(($at['file'] ?? 'PHP').':'.($at['line'] ?? 0)." looks at the request ($what) ".self::ONCE);
    }

    /** What answers. */
    public static function answers(): Request
    {
        if (null === self::$answers) {
            // As Illuminate\Foundation\Bootstrap\SetRequestForConsole.
            $uri = self::$app->bound('config') ? (string) self::$app->make('config')->get('app.url', '') : '';
            $path = parse_url($uri, \PHP_URL_PATH);
            $server = \is_string($path) ? ['SCRIPT_FILENAME' => $path, 'SCRIPT_NAME' => $path] + $_SERVER : $_SERVER;
            self::$answers = Request::create($uri ?: 'http://localhost', 'GET', [], [], [], $server);
        }

        return self::$answers;
    }

    private static function make(): Request
    {
        if (!class_exists(self::CLASS_NAME, false)) {
            self::declare();
        }
        $request = (new \ReflectionClass(self::CLASS_NAME))->newInstanceWithoutConstructor();
        foreach (self::BAGS as $bag) {
            if (!self::has_hooks($bag)) {
                unset($request->$bag);
            }
        }

        return $request;
    }

    /** A class whose bags are not there, so that who looks for them is heard of; from Symfony 8.1 on they have hooks. */
    private static function declare(): void
    {
        $code = '';
        foreach (self::BAGS as $bag) {
            if (self::has_hooks($bag)) {
                $type = (new \ReflectionProperty(Request::class, $bag))->getType();
                $code .= "public $type \$$bag { get { \\Hayate\\Boot\\EarlyRequest::note('$bag'); return \\Hayate\\Boot\\EarlyRequest::answers()->$bag; } }\n";
            }
        }
        foreach ((new \ReflectionClass(Request::class))->getMethods(\ReflectionMethod::IS_PUBLIC) as $method) {
            if (self::tells($method)) {
                $code .= self::noted($method);
            }
        }
        $bags = var_export(self::BAGS, true);
        eval('final class '.self::CLASS_NAME.' extends \\'.Request::class." {
            public function __get(\$name) {
                if (!\\in_array(\$name, $bags, true)) {
                    return parent::__get(\$name);
                }
                \\Hayate\\Boot\\EarlyRequest::note(\$name);
                return \\Hayate\\Boot\\EarlyRequest::answers()->\$name;
            }
            public function __set(\$name, \$value) {
                \\Hayate\\Boot\\EarlyRequest::note(\"\$name = …\");
                \$this->\$name = \$value;
            }
            $code}");
    }

    /** Whether a method may tell of a visitor, or keep what it is told. */
    private static function tells(\ReflectionMethod $method): bool
    {
        if ($method->isStatic() || $method->isFinal() || str_starts_with($method->name, '__')) {
            return false;
        }
        foreach ($method->getParameters() as $parameter) {
            if ($parameter->isPassedByReference()) {
                return false; // it cannot be declared as below; it goes by the bags
            }
        }

        return !\in_array($method->name, self::FOR_ALL, true);
    }

    /** A method that notes who calls it, as PHP code. */
    private static function noted(\ReflectionMethod $method): string
    {
        $type = (string) $method->getReturnType();
        $type = preg_replace('/\bself\b/', $method->class, $type);
        $returns = \in_array($type, ['void', 'never'], true) ? '' : 'return ';

        return '#[\ReturnTypeWillChange] public function '.($method->returnsReference() ? '&' : '')."$method->name(...\$arguments)".('' === $type ? '' : ": $type")
            ." { \\Hayate\\Boot\\EarlyRequest::note('$method->name()'); {$returns}parent::$method->name(...\$arguments); }\n";
    }

    private static function has_hooks(string $bag): bool
    {
        $property = new \ReflectionProperty(Request::class, $bag);

        return method_exists($property, 'hasHooks') && $property->hasHooks();
    }

    /** Whether nobody keeps it once there is another. */
    private static function is_released(\WeakReference $early, bool $framework_only): bool
    {
        $callbacks = self::rebound_callbacks();
        $all = $callbacks->getValue(self::$app);
        if ($framework_only) {
            $callbacks->setValue(self::$app, ['request' => array_filter($all['request'] ?? [], self::is_keepers(...))] + $all);
        }
        try {
            self::$app->instance('request', self::make());
        } catch (\Throwable) {
            // It was told of a request that nobody has sent.
        } finally {
            if ($framework_only) {
                $callbacks->setValue(self::$app, $all);
            }
        }
        gc_collect_cycles();

        return null === $early->get();
    }

    private static function rebound_callbacks(): \ReflectionProperty
    {
        return new \ReflectionProperty(Container::class, 'reboundCallbacks');
    }

    /** Whether the framework has something take the new request for the old one; authentication only tells it who it is of. */
    private static function is_keepers(\Closure $callback): bool
    {
        $of = (new \ReflectionFunction($callback))->getClosureScopeClass()?->name ?? '';

        return self::begins($of, ['Illuminate\\']) && 'Illuminate\\Auth\\AuthServiceProvider' !== $of;
    }

    /** The class of a service that keeps it. */
    private static function keeper(?object $early): ?string
    {
        $instances = new \ReflectionProperty(Container::class, 'instances');
        foreach ($instances->getValue(self::$app) as $instance) {
            if (\is_object($instance) && $instance !== self::$app && \in_array($early, (array) $instance, true)) {
                return $instance::class;
            }
        }

        return null;
    }

    /** @param list<string> $with */
    private static function begins(string $class, array $with): bool
    {
        foreach ($with as $one) {
            if (str_starts_with($class, $one)) {
                return true;
            }
        }

        return false;
    }
}
