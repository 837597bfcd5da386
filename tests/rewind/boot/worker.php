<?php
/*
 * What a boot can set that PHP ties to the request in which it is set. Each request says what it finds, then changes it.
 * Under php-fpm the script boots for each request (once.php).
 */
declare(strict_types=1);

final class Sessions implements SessionHandlerInterface
{
    /** @var list<string> */
    public static array $calls = [];

    public function open(string $path, string $name): bool
    {
        return (bool) (self::$calls[] = 'open');
    }

    public function close(): bool
    {
        return (bool) (self::$calls[] = 'close');
    }

    public function read(string $id): string
    {
        self::$calls[] = 'read';
        return '';
    }

    public function write(string $id, string $data): bool
    {
        return (bool) (self::$calls[] = "write $data");
    }

    public function destroy(string $id): bool
    {
        return true;
    }

    public function gc(int $lifetime): int
    {
        return 0;
    }
}

mb_internal_encoding('EUC-JP');
mb_http_output('SJIS');
mb_language('Japanese');
mb_substitute_character(0x3013);
mb_detect_order(['EUC-JP', 'JIS']);
mb_regex_encoding('EUC-JP');
session_set_save_handler(new Sessions(), true);
session_name('BOOT');
session_set_cookie_params(['lifetime' => 0, 'path' => '/boot']);
session_cache_limiter('');
set_time_limit(17);
ini_set('precision', '5');
ini_set('user_agent', 'boot');
libxml_use_internal_errors(true);
Locale::setDefault('ja_JP');
gc_disable();
register_shutdown_function(static function (): void {
    echo "\nshutdown of the boot: ", strtok(error_get_last()['message'] ?? 'no error', "\n");
});
register_shutdown_function(static function (): void {
    echo "\nand another";
});

$settings = static fn(): array => array_map(
    ini_get(...),
    ['precision', 'user_agent', 'max_execution_time', 'memory_limit', 'session.name', 'session.cookie_path', 'mbstring.language'],
);
$look = static fn(): array => [
    [mb_internal_encoding(), mb_http_output(), mb_language(), mb_substitute_character(), mb_detect_order(), mb_regex_encoding()],
    [session_module_name(), session_name(), session_get_cookie_params(), session_cache_limiter(), session_status()],
    [libxml_use_internal_errors(), Locale::getDefault(), gc_enabled()],
    $settings(),
];

while (hayate_handle_request(static function () use ($look, $settings): void {
    Sessions::$calls = []; // a warm-up request may have been here
    $found = $look();
    ini_set('precision', '3');
    ini_set('memory_limit', '64M');
    ini_restore('precision');
    ini_restore('user_agent');
    ini_restore('memory_limit');
    ini_restore('session.name');
    ini_restore('default_charset');
    $restored = $settings();
    session_start();
    $_SESSION['kept'] = 1;
    session_write_close();
    $calls = Sessions::$calls;
    // From here on for the next request to find.
    mb_internal_encoding('SJIS');
    mb_substitute_character('none');
    mb_regex_encoding('SJIS');
    session_set_save_handler(new SessionHandler());
    session_name('REQUEST');
    ini_set('precision', '2');
    ini_set('user_agent', 'request');
    ini_set('memory_limit', '2M');
    set_time_limit(3);
    register_shutdown_function(static function (): void {
        echo "\nshutdown of the request";
    });
    echo json_encode([$found, $restored, $calls], JSON_PRETTY_PRINT);
    match ($_GET['end'] ?? '') {
        'exit' => exit('exit'),
        'fatal' => undefined_function(),
        'memory' => str_repeat('x', 1 << 30),
        default => null,
    };
})) {
}
