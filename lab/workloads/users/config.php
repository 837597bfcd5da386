<?php
/* What the environment says of the database: lab/workloads/users/workload.toml sets it. */

declare(strict_types=1);

/** A setting; php-fpm and others have it in getenv(), some servers only in $_SERVER. */
function setting(string $name): string
{
    $value = getenv($name);

    return $value !== false ? $value : (string) ($_SERVER[$name] ?? throw new RuntimeException("$name is not set"));
}

/** Lets go of the database before a snapshot is taken of the process; whoever opens connections says how. */
function release(?Closure $how = null): void
{
    static $known = null;
    if ($how !== null) {
        $known = $how;
    } elseif ($known !== null) {
        $known();
    }
}

/** A new connection, or the process's persistent one. */
function connect(): PDO
{
    return new PDO(setting('USERS_DSN'), 'lab', 'lab', [
        PDO::ATTR_PERSISTENT => setting('USERS_PERSISTENT') === '1',
        PDO::ATTR_EMULATE_PREPARES => setting('USERS_EMULATE') === '1',
        PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION,
        PDO::ATTR_DEFAULT_FETCH_MODE => PDO::FETCH_ASSOC,
    ]);
}
