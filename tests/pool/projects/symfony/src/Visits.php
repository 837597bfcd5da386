<?php

declare(strict_types=1);

namespace App;

use Symfony\Component\HttpFoundation\RequestStack;

/** As many services do: what it has found out once it remembers, here of whom it was made for. */
final class Visits
{
    private string $first;

    public function __construct(RequestStack $requests)
    {
        $this->first = (string) $requests->getCurrentRequest()?->query->get('n', 'nobody');
    }

    public function first(): string
    {
        return $this->first;
    }
}
