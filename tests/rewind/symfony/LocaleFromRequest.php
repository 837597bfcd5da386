<?php

declare(strict_types=1);

namespace App\EventListener;

use Symfony\Component\HttpFoundation\RequestStack;
use Symfony\Component\HttpKernel\EventListener\LocaleListener;

/** A service of Symfony's that an application has replaced by its own. */
final class LocaleFromRequest extends LocaleListener
{
    public function __construct(RequestStack $requests)
    {
        parent::__construct($requests, $requests->getMainRequest()?->headers->get('X-Locale') ?? 'none');
    }
}
