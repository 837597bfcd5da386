<?php

declare(strict_types=1);

namespace App;

use Illuminate\Support\ServiceProvider;

/** A singleton that a request changes. */
final class Marks extends ServiceProvider
{
    public function register(): void
    {
        $this->app->singleton('marks', static fn () => (object) ['n' => 0]);
    }
}
