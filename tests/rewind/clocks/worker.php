<?php
/*
 * Clocks, and what is kept for a time: `step` says what a request does with them. Under php-fpm this file is the whole
 * script, so that the boot's part comes first there as well.
 */
declare(strict_types=1);

$files = getenv('FILES');
// What workers do not share: each then boots by itself.
$pair = getenv('PAIR') ? stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0) : null;
// The boot uses all that keeps a time.
apcu_store('boot', 1);
apcu_fetch('boot');
filesize("$files/size.txt");
include "$files/current/data.php";

$steps = [
    'include' => static fn (string $files, string $name): mixed => include "$files/$name",
    'cached' => static fn (string $files, string $name): bool => opcache_is_script_cached("$files/$name"),
    'change' => static fn (string $files, string $name): bool => opcache_invalidate("$files/$name", true),
    'full' => static function (): array {
        $status = opcache_get_status(false);
        return [$status['opcache_enabled'], $status['restart_pending'], $status['opcache_statistics']['oom_restarts']];
    },
    'size' => static fn (string $files): int => filesize("$files/size.txt"),
    'remember' => static fn (): bool => apcu_store('short', 'value', 1),
    'recall' => static fn (): mixed => apcu_fetch('short'),
    'paths' => static function (string $files): array {
        $kept = array_filter(realpath_cache_get(), static fn (string $path): bool => str_starts_with($path, $files), ARRAY_FILTER_USE_KEY);
        ksort($kept);
        return array_map(static fn (array $entry): array => [$entry['realpath'], $entry['expires'] >= time()], $kept);
    },
    'clocks' => static function (string $files): array {
        touch("$files/touched");
        session_save_path($files);
        session_id('clocks');
        session_start();
        $_SESSION['now'] = time();
        session_write_close();
        clearstatcache();
        include "$files/current/data.php";
        apcu_store('now', 1);
        $database = new PDO('sqlite::memory:');
        return [
            'time' => time(),
            'microtime' => (int) microtime(true),
            'gettimeofday' => gettimeofday()['sec'],
            'request' => $_SERVER['REQUEST_TIME'],
            'request_float' => (int) $_SERVER['REQUEST_TIME_FLOAT'],
            'date' => (int) date('U'),
            'datetime' => (new DateTimeImmutable())->getTimestamp(),
            'mktime' => mktime((int) date('H')),
            'intl' => intdiv((int) IntlCalendar::getNow(), 1000),
            'uniqid' => hexdec(substr(uniqid(), 0, 8)),
            'file' => filemtime("$files/touched"),
            'session' => filemtime("$files/sess_clocks"),
            'apcu' => apcu_key_info('now')['creation_time'],
            'opcache' => opcache_get_status()['scripts'][realpath("$files/current/data.php")]['last_used_timestamp'] ?? 0,
            'sqlite' => (int) $database->query("SELECT strftime('%s', 'now')")->fetchColumn(),
        ];
    },
];

$handler = static function () use ($files, $steps): void {
    header('Content-Type: application/json');
    echo json_encode($steps[$_GET['step']]($files, $_GET['name'] ?? ''));
};

if (!function_exists('hayate_handle_request')) {
    $handler();
    return;
}
while (hayate_handle_request($handler)) {
    /* Rewinding takes place in that call. */
}
