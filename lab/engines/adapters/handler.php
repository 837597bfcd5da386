<?php
/** How the adapters get at a workload's handler: see lab/workloads/README.md. */

declare(strict_types=1);

/**
 * The handler that a workload's file boots. With $reboot the application boots anew for each request: nothing it keeps in objects
 * stays, classes do.
 *
 * @return callable(string): array{int, array<string, string>, string}
 */
function handler(string $file, bool $reboot): callable
{
    $boot = require $file;

    return $reboot ? static fn (string $target): array => $boot()($target) : $boot();
}
