<?php

declare(strict_types=1);

namespace App;

use RuntimeException;

/** Lets a test say when a request goes on, so that nothing has to be timed: files `go-NAME` and `done-NAME` in storage. */
final class Signals
{
    /** Waits for `go-NAME`; after ten seconds the test has failed, and so does the request. */
    public function wait(string $name): void
    {
        for ($i = 0; ! file_exists(storage_path("go-$name")); $i++) {
            throw_if($i > 1000, RuntimeException::class, "nobody said go-$name");
            usleep(10_000);
        }
    }

    /** Says how often it was called. */
    public function done(string $name): void
    {
        file_put_contents(storage_path("done-$name"), '.', FILE_APPEND);
    }
}
