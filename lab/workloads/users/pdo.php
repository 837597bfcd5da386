<?php
/* A user by plain PDO. The connection is opened by the first request, not by the boot: processes may fork in between. */

declare(strict_types=1);

$database = null;
release(static function () use (&$database): void {
    $database = null;
});

return static function (int $id) use (&$database): ?array {
    $database ??= connect();
    $statement = $database->prepare('SELECT id, name, email, created_at FROM users WHERE id = ?');
    $statement->bindValue(1, $id, PDO::PARAM_INT);
    $statement->execute();
    $user = $statement->fetch() ?: null;
    $statement->closeCursor();

    return $user;
};
