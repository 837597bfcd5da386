<?php

declare(strict_types=1);

namespace App\Providers;

use App\Trail;
use Illuminate\Support\ServiceProvider;

final class AppServiceProvider extends ServiceProvider
{
    public function register(): void
    {
        $this->app->singleton(Trail::class);
    }
}
