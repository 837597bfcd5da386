<?php

declare(strict_types=1);

namespace App\Models;

use App\Events\NoteKept;
use Illuminate\Database\Eloquent\Model;
use Illuminate\Database\Eloquent\Relations\BelongsTo;

final class Note extends Model
{
    protected $fillable = ['title', 'text'];

    protected $dispatchesEvents = ['created' => NoteKept::class];

    public function user(): BelongsTo
    {
        return $this->belongsTo(User::class);
    }
}
