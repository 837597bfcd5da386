<?php

declare(strict_types=1);

namespace App\Models;

use Illuminate\Database\Eloquent\Model;

/** A row of the workload users-laravel: id, name, email, created_at. */
final class User extends Model
{
    public $timestamps = false;
}
