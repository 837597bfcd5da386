<?php

declare(strict_types=1);

namespace App\Listeners;

use App\Events\NoteKept;
use Illuminate\Contracts\Queue\ShouldQueue;

/** Goes through the queue: the event is serialised, and the note read from the database again. */
final class CountWords implements ShouldQueue
{
    public function handle(NoteKept $event): void
    {
        $event->note->words = str_word_count($event->note->text);
        $event->note->saveQuietly();
    }
}
