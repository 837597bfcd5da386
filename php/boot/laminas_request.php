<?php

/**
 * What makes the request of a Laminas MVC application, in place of Laminas' own: as the application boots, one that notes
 * who calls its methods, then Laminas' own. It has the name of Laminas' factory, and is there before that is looked for.
 */

declare(strict_types=1);

namespace Hayate\Boot {
    use Laminas\Http\PhpEnvironment\Request;

    final class MvcRequest
    {
        private const CLASS_NAME = 'Hayate_Boot_Request';

        /** It is made: it calls methods of its own then. */
        private static bool $made = false;
        private static ?string $asked = null;

        public static function make(): Request
        {
            if (self::$made) {
                return new Request();
            }
            self::declare();
            $request = new (self::CLASS_NAME)();
            self::$made = true;

            return $request;
        }

        /** Why requests must not begin with what this one has told; null: it has told nothing. */
        public static function asked(object $request): ?string
        {
            if (self::CLASS_NAME !== $request::class) {
                return 'whether its modules look at the request before there is one is not known: it is made by the project, not by Laminas\\Mvc\\Service\\RequestFactory';
            }

            return self::$asked;
        }

        public static function note(string $method): void
        {
            if (self::$made && null === self::$asked) {
                $by = debug_backtrace(\DEBUG_BACKTRACE_IGNORE_ARGS, 2)[1];
                self::$asked = ($by['file'] ?? 'PHP').':'.($by['line'] ?? 0)." looks at the request ($method()) before there is one, and would do so once for all visitors";
            }
        }

        /** A class that extends Laminas' and notes each call of a public method. */
        private static function declare(): void
        {
            $methods = '';
            foreach ((new \ReflectionClass(Request::class))->getMethods(\ReflectionMethod::IS_PUBLIC) as $method) {
                if ($method->isConstructor() || $method->isDestructor() || $method->isStatic() || $method->isFinal() || $method->returnsReference() || self::has_references($method)) {
                    continue;
                }
                $type = $method->getReturnType() ?? $method->getTentativeReturnType();
                $returns = null === $type || !\in_array((string) $type, ['void', 'never'], true) ? 'return ' : '';
                $methods .= sprintf(
                    "public function %1\$s(...\$arguments)%2\$s { \\Hayate\\Boot\\MvcRequest::note('%1\$s'); %3\$sparent::%1\$s(...\$arguments); }\n",
                    $method->name,
                    null === $type ? '' : ": $type",
                    $returns,
                );
            }
            eval('final class '.self::CLASS_NAME.' extends \\'.Request::class." {\n$methods}");
        }

        private static function has_references(\ReflectionMethod $method): bool
        {
            return [] !== array_filter($method->getParameters(), static fn (\ReflectionParameter $one): bool => $one->isPassedByReference());
        }
    }
}

namespace Laminas\Mvc\Service {
    final class RequestFactory
    {
        public function __invoke(): \Laminas\Http\PhpEnvironment\Request
        {
            return \Hayate\Boot\MvcRequest::make();
        }
    }
}
