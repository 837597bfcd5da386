<?php

declare(strict_types=1);

use Illuminate\Database\Eloquent\Model;

/** A row of `users`. In a file of its own: eloquent.php runs at each boot, also of servers that reboot in one process. */
final class User extends Model
{
    public $timestamps = false;
}
