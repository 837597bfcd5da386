<?php

// Boots one of the cases; each request does what the case says.

[, $boot, $request] = (require __DIR__ . '/cases.php')[getenv('EXT_CASE')];
$booted = $boot();
while (hayate_handle_request(static function () use ($booted, $request): void {
    try {
        $said = (string) $request($booted);
    } catch (Throwable $e) {
        http_response_code(500);
        $said = $e::class . ': ' . $e->getMessage();
    }
    header('X-Memory: ' . memory_get_usage());
    header('X-Pid: ' . getmypid());
    echo $said;
})) {
}
