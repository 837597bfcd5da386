<?php

namespace App\Http;

use Illuminate\Cookie\Middleware\AddQueuedCookiesToResponse;
use Illuminate\Cookie\Middleware\EncryptCookies;
use Illuminate\Foundation\Http\Kernel as HttpKernel;
use Illuminate\Routing\Middleware\SubstituteBindings;
use Illuminate\Session\Middleware\StartSession;

class Kernel extends HttpKernel
{
    protected $middlewareGroups = [
        'web' => [EncryptCookies::class, AddQueuedCookiesToResponse::class, StartSession::class, SubstituteBindings::class],
    ];
}
