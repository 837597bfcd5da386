<?php

declare(strict_types=1);

namespace App;

/** A service that remembers what it should forget: in itself, and in a static cache. */
final class Leaky
{
    /** @var list<string> */
    private static array $cache = [];

    private ?string $last = null;

    /** @return array{service: ?string, static: list<string>} whom it has met before, as a request sees it */
    public function meet(string $name): array
    {
        $found = ['service' => $this->last, 'static' => self::$cache];
        $this->last = $name;
        self::$cache = [...array_slice(self::$cache, -3), $name];

        return $found;
    }
}
