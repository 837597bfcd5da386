<?php

declare(strict_types=1);

namespace App\Jobs;

use Illuminate\Bus\Queueable;
use Illuminate\Contracts\Queue\ShouldQueue;
use Illuminate\Foundation\Bus\Dispatchable;

/** Work that waits in a queue, and writes what it was told. */
final class Told implements ShouldQueue
{
    use Dispatchable;
    use Queueable;

    public function __construct(public string $text)
    {
    }

    public function handle(): void
    {
        [$name, $text] = explode(' ', $this->text, 2);
        file_put_contents(getenv('OUT') . "/$name.log", "$text\n", FILE_APPEND);
    }
}
