<?php

declare(strict_types=1);

namespace App;

use Illuminate\Cookie\Middleware\AddQueuedCookiesToResponse;
use Illuminate\Cookie\Middleware\EncryptCookies;
use Illuminate\Foundation\Http\Kernel;
use Illuminate\Session\Middleware\StartSession;

final class HttpKernel extends Kernel
{
    protected $middlewareGroups = [
        'web' => [EncryptCookies::class, AddQueuedCookiesToResponse::class, StartSession::class],
    ];
}
