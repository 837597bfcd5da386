<?php

declare(strict_types=1);

namespace App;

use Symfony\Component\HttpFoundation\RequestStack;
use Twig\Extension\AbstractExtension;
use Twig\Extension\GlobalsInterface;

/** A global for all templates, from the request that there is when Twig is made. */
final class HostExtension extends AbstractExtension implements GlobalsInterface
{
    private string $host;

    public function __construct(RequestStack $requests)
    {
        $this->host = $requests->getMainRequest()?->getHost() ?? 'nobody';
    }

    public function getGlobals(): array
    {
        return ['host' => $this->host];
    }
}
