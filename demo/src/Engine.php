<?php

declare(strict_types=1);

namespace Windbook;

/**
 * What runs the page, for the footer and the engine page.
 *
 * One per boot: in worker mode it lives as long as the worker, in classic mode as long as the request.
 */
final class Engine
{
    private int $requests = 0;
    private readonly int $bootedAt;

    /** Nanoseconds, by a clock that never jumps. */
    private int $startedAt;

    public function __construct(public readonly Mode $mode)
    {
        $this->bootedAt = time();
        $this->startedAt = hrtime(true);
    }

    public function startRequest(): void
    {
        $this->requests++;
        // In classic mode the boot is part of the visitor's wait, so the clock keeps running from there.
        if ($this->mode === Mode::Worker) {
            $this->startedAt = hrtime(true);
        }
    }

    /** Requests since the application booted, the present one included. */
    public function requests(): int
    {
        return $this->requests;
    }

    public function isHayate(): bool
    {
        return function_exists('hayate_finish_request');
    }

    /** Milliseconds the application has spent on the present request; in classic mode that includes its boot. */
    public function elapsed(): float
    {
        return (hrtime(true) - $this->startedAt) / 1e6;
    }

    /** @return array<string, string> label => value, in the order of display */
    public function facts(): array
    {
        return [
            'Mode' => $this->mode->value,
            'SAPI' => PHP_SAPI,
            'PHP' => PHP_VERSION,
            'Process' => (string) getmypid(),
            'Requests since boot' => number_format($this->requests),
            'Booted' => gmdate('j M Y, H:i:s', $this->bootedAt) . ' UTC',
            'Time so far' => sprintf('%.2f ms', $this->elapsed()),
            'Memory' => sprintf('%.1f MiB', memory_get_usage() / 2 ** 20),
            'OPcache' => $this->opcache(),
        ];
    }

    private function opcache(): string
    {
        $status = function_exists('opcache_get_status') ? @opcache_get_status(false) : false;
        if ($status === false || !$status['opcache_enabled']) {
            return 'off';
        }

        return sprintf(
            'on, %d scripts, JIT %s',
            $status['opcache_statistics']['num_cached_scripts'],
            ($status['jit']['on'] ?? false) ? 'on' : 'off',
        );
    }
}
