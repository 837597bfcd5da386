<?php
/*
 * What a request finds when it begins, in one hash: everything PHP code can ask its process for that must not depend on
 * earlier requests. The text behind a hash is kept in MATRIX_DIR/fingerprints, so that two can be compared.
 */
declare(strict_types=1);

final class Fingerprint
{
    public static function take(): string
    {
        $text = json_encode(self::facts(), JSON_PRETTY_PRINT | JSON_UNESCAPED_SLASHES | JSON_INVALID_UTF8_SUBSTITUTE);
        $hash = md5($text);
        $file = Boot::$it->dir . "/fingerprints/$hash";
        if (!file_exists($file)) {
            file_put_contents($file, $text);
        }
        return $hash;
    }

    /** The handler in place, which is taken off and put back to be seen. */
    private static function handler(callable $set, callable $restore): string
    {
        $handler = $set(null);
        $restore();
        return get_debug_type($handler) . (is_string($handler) ? $handler : '');
    }

    /** What belongs to the process: getenv() tells of the request too. */
    private static function environment(): array
    {
        $found = getenv();
        ksort($found);
        $of_requests = '/^(HTTP|REQUEST|QUERY|SERVER|DOCUMENT|SCRIPT|PATH_INFO|REMOTE|CONTENT|GATEWAY|REDIRECT|FCGI)(_|$)/';
        return array_filter($found, static fn(string $name): bool => preg_match($of_requests, $name) === 0, ARRAY_FILTER_USE_KEY);
    }

    /** Open descriptors without the numbers of inodes, which differ from worker to worker. */
    private static function descriptors(): array
    {
        $found = [];
        $directory = opendir('/proc/self/fd');
        $own = 0;
        while (($fd = readdir($directory)) !== false) {
            if ($fd[0] !== '.') {
                $to = (string) @readlink("/proc/self/fd/$fd");
                if (!str_starts_with($to, '/proc/')) {
                    $found[(int) $fd] = preg_replace('/\d+/', 'N', $to);
                }
            }
        }
        closedir($directory);
        ksort($found);
        return $found;
    }

    private static function facts(): array
    {
        $first = new stdClass();
        $resource = fopen('php://memory', 'r');
        $facts = [
            'object' => static fn() => spl_object_id($first),
            'resource' => static fn() => get_resource_id($resource),
            'resources' => static fn() => array_map(static fn($r): string => get_resource_type($r), get_resources()),
            'globals' => static fn() => array_keys($GLOBALS),
            'functions' => static fn() => get_defined_functions()['user'],
            'classes' => static fn() => md5(implode(',', get_declared_classes())) . ' ' . count(get_declared_classes()),
            'interfaces' => static fn() => count(get_declared_interfaces()),
            'traits' => static fn() => get_declared_traits(),
            'constants' => static fn() => get_defined_constants(true)['user'] ?? [],
            'all constants' => static fn() => count(get_defined_constants()),
            'ini' => static fn() => ini_get_all(null, false),
            'included' => static fn() => get_included_files(),
            'include path' => static fn() => get_include_path(),
            'directory' => static fn() => getcwd(),
            'real directory' => static fn() => readlink('/proc/self/cwd'),
            'umask' => static fn() => umask(),
            'locale' => static fn() => setlocale(LC_ALL, '0'),
            'environment' => static fn() => self::environment(),
            'error handler' => static fn() => self::handler(set_error_handler(...), restore_error_handler(...)),
            'exception handler' => static fn() => self::handler(set_exception_handler(...), restore_exception_handler(...)),
            'autoloaders' => static fn() => count(spl_autoload_functions()),
            'autoload extensions' => static fn() => spl_autoload_extensions(),
            'output' => static fn() => [ob_get_level(), ob_list_handlers(), output_get_status()],
            'headers' => static fn() => [headers_list(), headers_sent(), http_response_code()],
            'connection' => static fn() => [connection_status(), ignore_user_abort()],
            'errors' => static fn() => [error_get_last(), error_reporting(), json_last_error(), preg_last_error(), openssl_error_string()],
            'libxml' => static fn() => [libxml_use_internal_errors(), libxml_get_errors()],
            'time zone' => static fn() => [date_default_timezone_get(), date('T e', 1000000000), getenv('TZ')],
            'mbstring' => static fn() => [mb_internal_encoding(), mb_substitute_character(), mb_language(), mb_http_output(), mb_detect_order()],
            'iconv' => static fn() => iconv_get_encoding(),
            'intl' => static fn() => [Locale::getDefault(), intl_get_error_code()],
            'streams' => static fn() => [stream_get_wrappers(), stream_get_filters(), stream_get_transports()],
            'context' => static fn() => stream_context_get_options(stream_context_get_default()),
            'collector' => static fn() => [gc_enabled(), gc_status()['runs'], gc_status()['roots'] < 20],
            'session' => static fn() => [session_status(), session_name(), session_id(), session_module_name(), isset($_SESSION), session_get_cookie_params()],
            'realpath cache' => static fn() => realpath_cache_size(),
            'signals' => static fn() => preg_grep('/^Sig(Blk|Ign|Cgt)|^Threads/', file('/proc/self/status')),
            'priority' => static fn() => explode(' ', file_get_contents('/proc/self/stat'))[18],
            'limits' => static fn() => posix_getrlimit(),
            'group' => static fn() => [posix_getpgrp() === getmypid(), posix_getsid(0) === getmypid()],
            'descriptors' => static fn() => self::descriptors(),
            'flags' => static fn() => array_map(
                static fn(int $fd): string => preg_replace('/^(?!flags).*\n/m', '', (string) @file_get_contents("/proc/self/fdinfo/$fd")),
                array_filter(array_keys(self::descriptors()), static fn(int $fd): bool => $fd > 6),
            ),
            'opcache' => static fn() => opcache_get_status(false)['opcache_enabled'] ?? false,
        ];
        foreach (Boot::$it->look() as $name => $look) {
            $facts["boot: $name"] = $look;
        }
        foreach ($facts as $name => $fact) {
            try {
                $facts[$name] = $fact();
            } catch (Throwable $thrown) {
                $facts[$name] = $thrown->getMessage();
            }
        }
        fclose($resource);
        return $facts;
    }
}

function output_get_status(): array
{
    return array_map(static fn(array $one): string => $one['name'], ob_get_status(true));
}
