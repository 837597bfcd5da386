<?php

declare(strict_types=1);

namespace App\Providers;

use App\Models\Note;
use App\Policies\NotePolicy;
use Illuminate\Foundation\Support\Providers\AuthServiceProvider as ServiceProvider;

final class AuthServiceProvider extends ServiceProvider
{
    protected $policies = [Note::class => NotePolicy::class];

    public function boot(): void
    {
        $this->registerPolicies();
    }
}
