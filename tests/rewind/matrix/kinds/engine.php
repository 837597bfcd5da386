<?php
/* What strains the engine and the extensions: memory, generators, fibers, FFI, libraries loaded late, threads, signals. */
declare(strict_types=1);

return [
    'huge_block' => static function (): void {
        $block = str_repeat('x', 20 << 20);
        echo strlen($block);
        unset($block);
        $GLOBALS['kept'] = str_repeat('y', 10 << 20);
    },
    'many_chunks' => static function (): void {
        for ($i = 0; $i < 200; $i++) {
            $GLOBALS['chunks'][] = str_repeat(chr(65 + $i % 26), 100000);
        }
        echo count($GLOBALS['chunks']);
    },
    'huge_block_grown' => static function (): void {
        $text = '';
        for ($i = 0; $i < 3000; $i++) {
            $text .= str_repeat('grow', 1000);
        }
        echo strlen($text);
    },
    'generators_suspended' => static function (Boot $boot): void {
        $witness = $boot->dir . '/finally';
        for ($i = 0; $i < 3; $i++) {
            $generator = (static function () use ($witness): Generator {
                try {
                    yield from (static function (): Generator {
                        yield 1;
                        yield 2;
                    })();
                } finally {
                    file_put_contents($witness, "g\n", FILE_APPEND);
                }
            })();
            $generator->current();
            $GLOBALS['generators'][] = $generator;
        }
    },
    'fibers_suspended' => static function (Boot $boot): void {
        $witness = $boot->dir . '/finally';
        for ($i = 0; $i < 3; $i++) {
            $fiber = new Fiber(static function () use ($witness): void {
                try {
                    array_map(static fn() => Fiber::suspend(), [1, 2]);
                } finally {
                    file_put_contents($witness, "f\n", FILE_APPEND);
                }
            });
            $fiber->start();
            $GLOBALS['fibers'][] = $fiber;
        }
    },
    'fibers_many' => static function (): void {
        for ($i = 0; $i < 200; $i++) {
            $fiber = new Fiber(static fn() => Fiber::suspend(str_repeat('x', 5000)));
            $fiber->start();
            if ($i % 2) {
                $fiber->resume();
            } else {
                $GLOBALS['fibers'][] = $fiber;
            }
        }
        echo count($GLOBALS['fibers']);
    },
    'fiber_throws' => static function (): void {
        $fiber = new Fiber(static function (): void {
            Fiber::suspend();
            throw new LogicException('out of a fiber');
        });
        $fiber->start();
        $fiber->resume();
    },
    'fiber_out_of_memory' => static function (): void {
        (new Fiber(static function (): void {
            $all = [];
            for (;;) {
                $all[] = str_repeat('x', 10000);
            }
        }))->start();
    },
    'patterns' => static function (): void {
        $found = 0;
        for ($i = 0; $i < 100; $i++) {
            $found += preg_match("/(?<n$i>\\w+)-($i|x)+(?=end)/u", "word-{$i}end");
        }
        echo $found, preg_replace_callback('/./', static fn(array $m): string => ucfirst($m[0]), 'abc');
    },
    'patterns_more_than_the_cache' => static function (): void {
        for ($i = 0; $i < 4200; $i++) {
            preg_match("/$i/", 'x');
        }
        echo 'filled';
    },
    'opcache_compiles' => static function (Boot $boot): void {
        file_put_contents($file = own_file($boot, 'compiled') . '.php', '<?php return ' . getmypid() . ';');
        touch($file, time() - 10);
        opcache_invalidate($file, true);
        opcache_compile_file($file);
        echo (include $file) === getmypid() ? 'same' : 'other', opcache_is_script_cached(__FILE__) ? '' : '';
    },
    'opcache_functions' => static function (): void {
        opcache_get_configuration();
        opcache_invalidate(__FILE__ . '.none', true);
        echo opcache_get_status(true) === false ? 'off' : 'on';
    },
    'apcu' => static function (): void {
        apcu_store('key' . getmypid(), ['value', new Node('in APCu')], 60);
        apcu_inc('counter');
        echo apcu_fetch('key' . getmypid())[1]->name;
        apcu_entry('entry', static fn(): string => 'made');
    },
    'apcu_fatal_inside' => static function (): void {
        apcu_entry('fatal' . getmypid(), static fn() => str_repeat('x', 1 << 30));
    },
    'iconv_loads_a_library' => static function (): void {
        $charsets = ['EUC-JP', 'SHIFT_JIS', 'KOI8-R', 'BIG5', 'GB18030', 'ISO-2022-JP', 'CP1252', 'UTF-7', 'EUC-KR', 'TCVN'];
        foreach ($charsets as $charset) {
            echo strlen((string) @iconv('UTF-8', "$charset//IGNORE", 'abc'));
        }
    },
    'gettext' => static function (Boot $boot): void {
        bindtextdomain('matrix', $boot->dir);
        textdomain('matrix');
        echo gettext('text');
    },
    'intl' => static function (): void {
        $GLOBALS['intl'] = [
            new IntlDateFormatter('de_DE', IntlDateFormatter::FULL, IntlDateFormatter::FULL),
            new NumberFormatter('fr_FR', NumberFormatter::SPELLOUT),
            new Collator('sv_SE'),
            IntlBreakIterator::createWordInstance('en'),
            Transliterator::create('Any-Latin; Latin-ASCII'),
            IntlCalendar::createInstance('Asia/Tokyo'),
            new ResourceBundle('en', null),
            new MessageFormatter('en', '{0, plural, one{one} other{many}}'),
        ];
        echo $GLOBALS['intl'][1]->format(42), ' ', $GLOBALS['intl'][4]->transliterate('Ελληνικά');
    },
    'gd' => static function (): void {
        $image = imagecreatetruecolor(300, 300);
        imagefilledellipse($image, 150, 150, 100, 100, imagecolorallocate($image, 200, 0, 0));
        imagestring($image, 5, 10, 10, 'text', 0xffffff);
        ob_start();
        imagepng($image);
        echo strlen(ob_get_clean()) > 500 ? 'drawn' : 'empty';
        $GLOBALS['image'] = $image;
    },
    'dom' => static function (): void {
        $document = new DOMDocument();
        @$document->loadHTML('<p>' . str_repeat('<b>x</b>', 2000));
        $path = new DOMXPath($document);
        $path->registerNamespace('php', 'http://php.net/xpath');
        $path->registerPhpFunctions();
        echo $path->query('//b')->length;
        $GLOBALS['node'] = $document->documentElement->firstChild;
        $GLOBALS['simple'] = simplexml_import_dom($document);
        $style = new DOMDocument();
        $style->loadXML('<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform"><xsl:template match="/">t</xsl:template></xsl:stylesheet>');
        $GLOBALS['xslt'] = new XSLTProcessor();
        $GLOBALS['xslt']->importStylesheet($style);
        echo strlen($GLOBALS['xslt']->transformToXml($document));
    },
    'dates' => static function (): void {
        foreach (array_slice(DateTimeZone::listIdentifiers(), 0, 60) as $zone) {
            $GLOBALS['dates'][] = new DateTimeImmutable('2020-05-05', new DateTimeZone($zone));
        }
        echo $GLOBALS['dates'][5]->format('e'), (new DateTime('@0'))->diff($GLOBALS['dates'][1])->y;
    },
    'hashes' => static function (): void {
        $GLOBALS['hash'] = hash_init('sha256');
        hash_update($GLOBALS['hash'], 'open');
        echo hash('xxh3', 'x'), substr(sodium_bin2hex(sodium_crypto_generichash('x')), 0, 4);
        openssl_pkey_new(['private_key_type' => OPENSSL_KEYTYPE_EC, 'curve_name' => 'prime256v1']);
    },
    'compression' => static function (): void {
        $GLOBALS['deflate'] = deflate_init(ZLIB_ENCODING_GZIP);
        deflate_add($GLOBALS['deflate'], str_repeat('x', 100000), ZLIB_NO_FLUSH);
        echo strlen(gzuncompress(gzcompress(str_repeat('y', 100000))));
    },
    'json' => static function (): void {
        $deep = [];
        for ($i = 0; $i < 500; $i++) {
            $deep = [$deep];
        }
        echo strlen(json_encode(range(1, 20000))), @json_encode($deep, 0, 100) === false ? 'deep' : '';
    },
    'fileinfo' => static function (): void {
        $GLOBALS['finfo'] = new finfo(FILEINFO_MIME_TYPE);
        echo $GLOBALS['finfo']->file(__FILE__);
    },
    'ffi_memory' => static function (): void {
        $ffi = FFI::cdef('void *malloc(size_t); void *memset(void *, int, size_t); void *mmap(void *, size_t, int, int, int, long);');
        $ffi->memset($ffi->malloc(30 << 20), 1, 30 << 20);
        $ffi->memset($ffi->mmap(null, 5 << 20, 3, 0x22, -1, 0), 1, 5 << 20);
        $GLOBALS['ffi'] = FFI::new('char[1000000]', false, true);
        FFI::memset($GLOBALS['ffi'], 65, 1000000);
        echo 'left';
    },
    'ffi_library' => static function (): void {
        echo round(FFI::cdef('double cbrt(double);', 'libm.so.6')->cbrt(27.0));
        $GLOBALS['ffi'] = FFI::cdef('const char *BZ2_bzlibVersion(void);', 'libbz2.so.1.0');
        echo strlen($GLOBALS['ffi']->BZ2_bzlibVersion()) > 0 ? 'loaded' : '';
    },
    'ffi_unmaps_the_boot' => static function (): void {
        /* A mapping of the boot goes and another takes its place: the rewinder has to see it. */
        $ffi = FFI::cdef('int munmap(void *, size_t);');
        preg_match('/^([0-9a-f]+)-([0-9a-f]+) r--p .*C\.utf8\/LC_CTYPE/m', file_get_contents('/proc/self/maps'), $found);
        $from = $found === [] ? 0 : hexdec($found[1]);
        echo $from === 0 ? 'no such mapping' : $ffi->munmap(FFI::cast('void *', $from), hexdec($found[2]) - $from);
    },
    'ffi_writes_to_the_boot' => static function (Boot $boot): void {
        FFI::memset($boot->pages, 67, 2 * 4096);
        echo FFI::string($boot->pages, 3);
    },
    'ffi_unmaps_boot_memory' => static function (Boot $boot): void {
        echo $boot->libc->munmap($boot->pages + 4096, 2 * 4096);
    },
    'ffi_maps_over_boot_memory' => static function (Boot $boot): void {
        $boot->libc->munmap($boot->pages, 4 * 4096);
        /* MAP_FIXED */
        $there = FFI::cast('char *', $boot->libc->mmap($boot->pages, 4 * 4096, 3, 0x32, -1, 0));
        FFI::memset($there, 67, 4 * 4096);
        echo FFI::string($boot->pages, 3);
    },
    'ffi_protects_boot_memory' => static function (Boot $boot): void {
        echo $boot->libc->mprotect($boot->pages + 4096, 4096, 0);
    },
    'ffi_thread' => static function (): void {
        /* glibc's asynchronous resolver keeps a thread for a second. */
        $ffi = FFI::cdef('
            struct gaicb { const char *name; const char *service; const void *request; void *result; int r; int u[5]; };
            int getaddrinfo_a(int, struct gaicb *list[], int, void *);
        ');
        $name = FFI::new('char[10]', false, true);
        FFI::memcpy($name, "127.0.0.1\0", 10);
        $block = $ffi->new('struct gaicb', false, true);
        $block->name = FFI::cast('char *', FFI::addr($name));
        $list = $ffi->new('struct gaicb *[1]', false, true);
        $list[0] = FFI::addr($block);
        echo $ffi->getaddrinfo_a(1, $list, 1, null);
    },
    'ffi_timer' => static function (): void {
        $ffi = FFI::cdef('unsigned alarm(unsigned); void *signal(int, void *);');
        $ffi->alarm(1);
        echo 'armed';
    },
    'ffi_signals' => static function (): void {
        $ffi = FFI::cdef('void *signal(int, void *); int sigprocmask(int, const unsigned long *, void *);');
        $ffi->signal(12, FFI::cast('void *', 1));
        $set = FFI::new('unsigned long[16]');
        $set[0] = 1 << 9;
        $ffi->sigprocmask(0, FFI::cast('unsigned long *', FFI::addr($set)), null);
        echo 'blocked';
    },
    'limits' => static function (): void {
        echo posix_setrlimit(POSIX_RLIMIT_CORE, 0, 0) && posix_setrlimit(POSIX_RLIMIT_NOFILE, 200, 200) ? 'limited' : 'refused';
    },
    'process_group' => static function (): void {
        echo posix_setpgid(0, 0) ? 'own group' : 'refused', posix_setsid() > 0 ? ' own session' : '';
    },
    'priority' => static function (): void {
        echo proc_nice(1) ? 'nicer' : 'refused';
    },
    'no_processes' => static function (): void {
        echo function_exists('pcntl_fork') ? 'fork' : 'no fork', function_exists('pcntl_signal') ? 'signal' : '';
    },
    'randomness' => static function (): void {
        for ($i = 0; $i < 100; $i++) {
            mt_rand();
            lcg_value();
            random_int(1, 10);
        }
        $GLOBALS['engine'] = new Random\Randomizer(new Random\Engine\Mt19937(5));
        echo $GLOBALS['engine']->getInt(1, 1000);
    },
];
