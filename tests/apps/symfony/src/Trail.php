<?php

declare(strict_types=1);

namespace App;

use Symfony\Contracts\Service\ResetInterface;

/** A service with state of one request, as loggers and profilers have it: in worker mode the framework has to reset it. */
final class Trail implements ResetInterface
{
    /** @var list<string> */
    private array $steps = [];

    public function add(string $step): void
    {
        $this->steps[] = $step;
    }

    /** @return list<string> */
    public function steps(): array
    {
        return $this->steps;
    }

    public function reset(): void
    {
        $this->steps = [];
    }
}
