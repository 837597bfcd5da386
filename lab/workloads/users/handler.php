<?php
/* GET /users/ID as JSON, 404 for an unknown one. What finds the user is in pdo.php and eloquent.php. */

declare(strict_types=1);

require_once __DIR__.'/config.php';

return static function (): Closure {
    /** @var Closure(int): ?array $find */
    $find = require __DIR__.(setting('USERS_ACCESS') === 'eloquent' ? '/eloquent.php' : '/pdo.php');

    return static function (string $target) use ($find): array {
        $user = preg_match('~^/users/(\d{1,9})$~', $target, $match) ? $find((int) $match[1]) : null;

        return $user === null
            ? [404, ['Content-Type' => 'application/json'], '{"error":"no such user"}']
            : [200, ['Content-Type' => 'application/json'], json_encode($user)];
    };
};
