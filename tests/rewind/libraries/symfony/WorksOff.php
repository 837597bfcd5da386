<?php

declare(strict_types=1);

namespace App;

use Symfony\Component\Messenger\Attribute\AsMessageHandler;

/** Handles messages, on the command line. */
#[AsMessageHandler]
final class WorksOff
{
    public function __construct(private Registry $doctrine)
    {
    }

    public function __invoke(Told $told): void
    {
        $this->doctrine->getConnection()->insert('arrivals', ['name' => 'worked off, '.\PHP_SAPI." $told->text"]);
    }
}
