<?php

declare(strict_types=1);

namespace App\Providers;

use App\Events\NoteKept;
use App\Listeners\CountWords;
use Illuminate\Foundation\Support\Providers\EventServiceProvider as ServiceProvider;

final class EventServiceProvider extends ServiceProvider
{
    protected $listen = [NoteKept::class => [CountWords::class]];
}
