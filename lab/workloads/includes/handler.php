<?php
/* Includes the file that the environment names, and answers with the last thing in it. Servers that stay include it once. */

declare(strict_types=1);

return static function (): Closure {
    $file = (string) (getenv('INCLUDES_FILE') ?: $_SERVER['INCLUDES_FILE'] ?? '');
    if ($file === '') {
        $last = static fn (): string => 'nothing';
    } elseif (str_contains($file, 'methods')) {
        require_once $file;
        $methods = new Methods();
        $last = static fn (): string => $methods->method10000();
    } else {
        $array = require $file;
        $last = static fn (): string => $array['entry '.count($array)];
    }

    return static fn (string $target): array => [
        200,
        ['Content-Type' => 'application/json'],
        json_encode(['included' => $last()]),
    ];
};
