<?php

declare(strict_types=1);

namespace App\Models;

use Illuminate\Database\Eloquent\Model;

/** An author: id, name, email. */
final class User extends Model
{
    protected $table = 'authors';

    public $timestamps = false;
}
