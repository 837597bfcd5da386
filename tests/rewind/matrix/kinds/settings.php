<?php
/* Settings, handlers and registrations, those of the boot included. */
declare(strict_types=1);

final class Request_Filter extends php_user_filter
{
    public function filter($in, $out, &$consumed, bool $closing): int
    {
        while ($bucket = stream_bucket_make_writeable($in)) {
            $bucket->data = strtoupper($bucket->data);
            $consumed += $bucket->datalen;
            stream_bucket_append($out, $bucket);
        }
        return PSFS_PASS_ON;
    }
}

final class Request_Wrapper
{
    public $context;
    private int $read = 0;

    public function stream_open(string $path): bool
    {
        return true;
    }

    public function stream_read(int $count): string
    {
        return $this->read++ === 0 ? 'wrapped' : '';
    }

    public function stream_eof(): bool
    {
        return $this->read > 0;
    }

    public function stream_stat(): array
    {
        return [];
    }
}

return [
    'ini_set' => static function (): void {
        $settings = [
            'precision' => '3', 'serialize_precision' => '5', 'memory_limit' => '100M', 'max_execution_time' => '7',
            'display_errors' => '0', 'error_log' => '/dev/null', 'log_errors' => '0', 'default_charset' => 'ISO-8859-1',
            'include_path' => '/nowhere', 'default_socket_timeout' => '1', 'user_agent' => 'request', 'auto_detect_line_endings' => '1',
            'pcre.backtrack_limit' => '10', 'pcre.jit' => '0', 'mbstring.language' => 'Japanese', 'session.gc_probability' => '0',
            'session.name' => 'OTHER', 'session.save_path' => '/nowhere', 'session.cookie_lifetime' => '77', 'date.timezone' => 'Asia/Tokyo',
            'assert.exception' => '0', 'zend.assertions' => '0', 'arg_separator.output' => ';', 'html_errors' => '1',
            'unserialize_max_depth' => '3', 'error_append_string' => 'x', 'intl.default_locale' => 'ja_JP', 'highlight.string' => '#123456',
            'output_buffering' => '1', 'implicit_flush' => '1', 'zlib.output_compression' => '0', 'url_rewriter.tags' => 'a=href',
            'variables_order' => 'E', 'ignore_user_abort' => '1', 'opcache.enable' => '0', 'libxml.no_such' => '1', 'exif.encode_unicode' => 'UTF-8',
            'soap.none' => '1', 'sqlite3.defensive' => '0', 'mysqli.reconnect' => '1', 'session.use_cookies' => '0', 'zend.enable_gc' => '0',
        ];
        foreach ($settings as $name => $value) {
            @ini_set($name, $value);
        }
        echo 1 / 3;
    },
    'ini_restore' => static function (): void {
        ini_restore('precision');
        ini_restore('user_agent');
        ini_restore('memory_limit');
        echo ini_get('user_agent');
    },
    'ini_set_then_fatal' => static function (): void {
        ini_set('precision', '2');
        ini_set('memory_limit', '24M');
        str_repeat('x', 1 << 28);
    },
    'memory_limit_raised' => static function (): void {
        ini_set('memory_limit', '300M');
        $GLOBALS['large'] = str_repeat('x', 100 << 20);
        echo strlen($GLOBALS['large']);
    },
    'error_reporting' => static function (): void {
        error_reporting(0);
        echo $undefined, @$also;
        trigger_error('unheard');
    },
    'putenv' => static function (): void {
        putenv('NEW=' . str_repeat('x', 5000));
        putenv('BOOT=changed');
        putenv('TZ=Asia/Tokyo');
        putenv('MATRIX_DIR');
        echo strlen(getenv('NEW')), getenv('BOOT');
    },
    'putenv_unset' => static function (): void {
        putenv('BOOT');
        var_dump(getenv('BOOT'));
    },
    'setlocale' => static function (): void {
        setlocale(LC_ALL, 'C');
        echo setlocale(LC_CTYPE, '0'), setlocale(LC_ALL, 'C.utf8');
    },
    'locale_default' => static function (): void {
        Locale::setDefault('ja_JP');
        echo Locale::getDefault();
    },
    'timezone' => static function (): void {
        date_default_timezone_set('Asia/Tokyo');
        echo date('H:i e', 0);
    },
    'chdir' => static function (): void {
        chdir('/');
        echo getcwd();
    },
    'chdir_removed' => static function (Boot $boot): void {
        mkdir($directory = $boot->dir . '/d' . getmypid());
        chdir($directory);
        rmdir($directory);
    },
    'umask' => static function (): void {
        umask(0777);
        echo umask();
    },
    'include_path' => static function (): void {
        set_include_path('/tmp' . PATH_SEPARATOR . get_include_path());
    },
    'error_handlers' => static function (): void {
        for ($i = 0; $i < 10; $i++) {
            set_error_handler(static fn(int $n, string $text): bool => print "[$text]");
        }
        echo $undefined;
        restore_error_handler();
        set_error_handler(null);
    },
    'error_handler_of_the_boot' => static function (): void {
        restore_error_handler();
        restore_error_handler();
    },
    'exception_handlers' => static function (): void {
        set_exception_handler(static function (Throwable $thrown): void {
            echo get_class($thrown);
        });
        set_exception_handler(static function (Throwable $thrown): void {
            echo 'second ', get_class($thrown);
        });
        throw new DomainException('x');
    },
    'autoloaders' => static function (Boot $boot): void {
        for ($i = 0; $i < 5; $i++) {
            spl_autoload_register(static function (string $class) use ($i, $boot): void {
                echo "$i:$class ";
            });
        }
        echo class_exists('Not_There') ? 'there' : 'not there';
        foreach (spl_autoload_functions() as $function) {
            spl_autoload_unregister($function);
        }
        spl_autoload_extensions('.none');
    },
    'assert_options' => static function (): void {
        ini_set('assert.exception', '0');
        ini_set('assert.warning', '0');
        @assert_options(ASSERT_CALLBACK, static fn() => print 'asserted');
        assert(false);
    },
    'user_abort' => static function (): void {
        ignore_user_abort(true);
        echo connection_status();
    },
    'time_limit' => static function (): void {
        set_time_limit(10);
    },
    'mbstring' => static function (): void {
        mb_internal_encoding('SJIS');
        mb_substitute_character(0x3013);
        mb_language('Japanese');
        mb_http_output('SJIS');
        mb_detect_order('EUC-JP,SJIS');
        mb_regex_encoding('EUC-JP');
        mb_ereg_search_init('text', 't');
        mb_ereg_search();
        echo mb_strlen('é');
    },
    'libxml' => static function (): void {
        libxml_use_internal_errors(true);
        libxml_set_external_entity_loader(static fn(): ?string => null);
        libxml_set_streams_context(stream_context_create());
        (new DOMDocument())->loadXML('<broken');
        echo count(libxml_get_errors());
    },
    'libxml_loader_used' => static function (): void {
        libxml_set_external_entity_loader(static function ($public, $system): string {
            throw new LogicException("asked for $system");
        });
        $document = new DOMDocument();
        $document->loadXML('<!DOCTYPE r SYSTEM "other.dtd"><r>&e;</r>', LIBXML_DTDLOAD | LIBXML_NOENT);
    },
    'stream_wrappers' => static function (): void {
        stream_wrapper_register('request', Request_Wrapper::class);
        echo file_get_contents('request://x');
        stream_wrapper_unregister('bootmem');
        stream_wrapper_unregister('file');
        stream_wrapper_unregister('php');
        stream_wrapper_register('file', Request_Wrapper::class);
        echo file_get_contents(__FILE__);
    },
    'stream_filters' => static function (Boot $boot): void {
        stream_filter_register('request.*', Request_Filter::class);
        $stream = fopen('php://memory', 'w+');
        stream_filter_append($stream, 'request.upper', STREAM_FILTER_WRITE);
        fwrite($stream, 'filtered');
        rewind($stream);
        echo stream_get_contents($stream);
        stream_filter_append($boot->memory, 'string.rot13');
        fwrite($boot->memory, 'more');
        stream_filter_append($GLOBALS['left'] = fopen($boot->dir . '/filtered' . getmypid(), 'w'), 'convert.base64-encode', STREAM_FILTER_WRITE);
        fwrite($GLOBALS['left'], 'ab');
    },
    'stream_contexts' => static function (): void {
        stream_context_set_default(['http' => ['user_agent' => 'leak', 'proxy' => 'tcp://127.0.0.1:1']]);
        libxml_set_streams_context(stream_context_create(['http' => ['timeout' => 1]]));
    },
    'ticks' => static function (): void {
        register_tick_function(static function (): void {
            $GLOBALS['ticked'] = ($GLOBALS['ticked'] ?? 0) + 1;
        });
        eval('declare(ticks=1) { $a = 1; $b = 2; }');
        echo $GLOBALS['ticked'] > 0 ? 'ticked' : 'never';
    },
    'sessions_settings' => static function (): void {
        session_name('OTHER');
        session_set_cookie_params(['lifetime' => 9, 'path' => '/x', 'secure' => true]);
        session_cache_limiter('public');
        session_cache_expire(5);
        session_id('fixedid');
    },
    'fixed_seed' => static function (): void {
        mt_srand(42);
        srand(42);
        echo mt_rand(), ' ', rand(1, 100), ' ', implode(',', array_rand(range(0, 99), 3));
    },
    'collector' => static function (): void {
        gc_disable();
        $a = [];
        $a['self'] = &$a;
        gc_enable();
        gc_collect_cycles();
        gc_mem_caches();
        gc_disable();
    },
    'openssl_errors' => static function (): void {
        @openssl_pkey_get_private('no key');
        @openssl_x509_read('no certificate');
        echo openssl_encrypt('x', 'aes-128-cbc', 'key', 0, str_repeat('i', 16));
    },
    'last_errors' => static function (): void {
        echo @$undefined;
        json_decode('{');
        @preg_match('/(?:\D+|<\d+>)*[!?]/', 'foobar foobar foobar');
        echo json_last_error(), preg_last_error(), error_get_last() !== null ? 'e' : '';
    },
    'classic_settings' => static function (): void {
        highlight_string('<?php echo 1;');
        openlog('hayate-matrix', LOG_PID, LOG_USER);
        header_register_callback(static function (): void {
            header('X-Callback: called');
        });
    },
    'output_rewriter' => static function (): void {
        output_add_rewrite_var('leak', 'value');
        echo '<a href="x.php">x</a>';
    },
];
