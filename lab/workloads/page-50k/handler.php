<?php
/* The answer as a value, for servers that keep PHP running: see lab/workloads/README.md. */
require_once __DIR__.'/page.php';

return static fn (): Closure => static function (string $target): array {
    $body = '';
    page(static function (string $line) use (&$body): void {
        $body .= $line;
    });

    return [200, ['Content-Type' => 'text/html; charset=utf-8'], $body];
};
