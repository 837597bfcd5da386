<?php

declare(strict_types=1);

namespace App;

/** Lets a test say when a request goes on, so that nothing has to be timed: files `go-NAME` and `done-NAME` in var. */
final class Signals
{
    public function __construct(private string $var)
    {
    }

    /** Waits for `go-NAME`; after ten seconds the test has failed, and so does the request. */
    public function wait(string $name): void
    {
        for ($i = 0; !file_exists("$this->var/go-$name"); ++$i) {
            if ($i > 1000) {
                throw new \RuntimeException("nobody said go-$name");
            }
            usleep(10_000);
        }
    }

    public function done(string $name): void
    {
        touch("$this->var/done-$name");
    }
}
