<?php

declare(strict_types=1);

namespace App\Models;

use Illuminate\Database\Eloquent\Model;

/** Who writes posts: id, name, email. */
final class Author extends Model
{
    public $timestamps = false;
}
