<?php

declare(strict_types=1);

namespace App\Providers;

use App\Models\Note;
use App\Policies\NotePolicy;
use Illuminate\Auth\Middleware\Authenticate;
use Illuminate\Foundation\Support\Providers\AuthServiceProvider as ServiceProvider;

final class AuthServiceProvider extends ServiceProvider
{
    protected $policies = [Note::class => NotePolicy::class];

    public function boot(): void
    {
        $this->registerPolicies();
        // Since Laravel 11 the application says where the form is.
        if (method_exists(Authenticate::class, 'redirectUsing')) {
            Authenticate::redirectUsing(static fn (): string => route('login'));
        }
    }
}
