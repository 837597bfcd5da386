<?php

declare(strict_types=1);

namespace App\Jobs;

use App\Signals;
use Illuminate\Foundation\Bus\Dispatchable;

/** Work after the answer, when the test says so. */
final class Later
{
    use Dispatchable;

    public function __construct(private string $name)
    {
    }

    public function handle(Signals $signals): void
    {
        $signals->wait($this->name);
        $signals->done($this->name);
    }
}
