<?php

namespace App\Providers;

use Illuminate\Support\ServiceProvider;

class AppServiceProvider extends ServiceProvider
{
    public function register(): void
    {
        // A singleton that a request changes.
        $this->app->singleton('marks', static fn () => (object) ['n' => 0]);
    }
}
