<?php

declare(strict_types=1);

namespace App\Events;

use App\Models\Note;
use Illuminate\Queue\SerializesModels;

/** Eloquent announces it when a note was inserted. */
final class NoteKept
{
    use SerializesModels;

    public function __construct(public Note $note)
    {
    }
}
