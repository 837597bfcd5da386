<?php

declare(strict_types=1);

namespace App;

/** A message that waits in Redis. */
final class Told
{
    public function __construct(public string $text)
    {
    }
}
