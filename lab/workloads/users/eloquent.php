<?php
/* A user by Laravel's Eloquent, without the rest of Laravel. */

declare(strict_types=1);

use Illuminate\Database\Capsule\Manager;

require_once '/usr/share/php/Illuminate/autoload.php';
require_once __DIR__.'/User.php';

// Eloquent knows databases by host and name; the connection itself is ours, with the same options as plain PDO has.
$capsule = new Manager();
$driver = strtok(setting('USERS_DSN'), ':');
$capsule->getDatabaseManager()->extend('lab', static function (array $config) use ($driver): Illuminate\Database\Connection {
    $class = ['mysql' => Illuminate\Database\MySqlConnection::class, 'sqlite' => Illuminate\Database\SQLiteConnection::class][$driver];

    return new $class(connect(...), 'lab', '', $config);
});
$capsule->addConnection(['driver' => 'lab', 'name' => 'lab'], 'lab');
$capsule->getDatabaseManager()->setDefaultConnection('lab');
$capsule->bootEloquent();
release(static fn () => $capsule->getDatabaseManager()->purge());

return static fn (int $id): ?array => User::query()->find($id, ['id', 'name', 'email', 'created_at'])?->attributesToArray();
