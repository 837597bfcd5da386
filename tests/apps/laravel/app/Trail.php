<?php

declare(strict_types=1);

namespace App;

/** State of one request in a singleton, as many packages keep it; and in a static property, which nothing can reset. */
final class Trail
{
    public static int $calls = 0;

    /** @var list<string> */
    public array $steps = [];

    public function add(string $step): void
    {
        $this->steps[] = $step;
        self::$calls++;
    }
}
