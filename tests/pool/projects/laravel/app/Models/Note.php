<?php

declare(strict_types=1);

namespace App\Models;

use Illuminate\Database\Eloquent\Model;

/** A model that listens to its own events, which it says once in a process. */
final class Note extends Model
{
    public bool $seen = false;
    public $timestamps = false;

    protected static function booted(): void
    {
        static::saving(static function (Note $note): bool {
            $note->seen = true;

            return false;
        });
    }
}
