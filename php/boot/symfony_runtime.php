<?php

/** The runtime that boot/symfony.php has symfony/runtime make: the kernel it gets handles requests in a loop. */

declare(strict_types=1);

namespace Hayate\Boot;

use Symfony\Component\HttpKernel\HttpKernelInterface;
use Symfony\Component\Runtime\RunnerInterface;

final class SymfonyRuntime extends \Symfony\Component\Runtime\SymfonyRuntime
{
    /** @var \Closure(HttpKernelInterface): void */
    public static \Closure $serve;

    public function getRunner(?object $application): RunnerInterface
    {
        if (!$application instanceof HttpKernelInterface) {
            throw new \LogicException(sprintf('public/index.php returned %s where a kernel was expected; --mode classic serves it as php-fpm would', get_debug_type($application)));
        }
        $serve = self::$serve;

        return new class($serve, $application) implements RunnerInterface {
            public function __construct(private \Closure $serve, private HttpKernelInterface $kernel)
            {
            }

            public function run(): int
            {
                ($this->serve)($this->kernel);

                return 0;
            }
        };
    }
}
