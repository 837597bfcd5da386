<?php
/* Output: buffers, callbacks, headers, large and unfinished answers. */
declare(strict_types=1);

return [
    'buffers_left_open' => static function (): void {
        for ($i = 0; $i < 5; $i++) {
            ob_start(static fn(string $text): string => "[$text]");
            echo $i;
        }
    },
    'buffer_callback_throws' => static function (): void {
        ob_start(static function (string $text): string {
            throw new LogicException('in a callback');
        });
        echo 'text';
    },
    'buffer_callback_exits' => static function (): void {
        ob_start(static function (string $text): string {
            exit;
        });
        echo 'text';
    },
    'buffer_callback_out_of_memory' => static function (): void {
        ob_start(static fn(string $text): string => str_repeat('x', 1 << 30));
        echo 'text';
    },
    'buffer_callback_is_an_object' => static function (): void {
        ob_start([new class {
            public int $calls = 0;

            public function filter(string $text): string
            {
                return $text . ++$this->calls;
            }
        }, 'filter'], 3);
        echo 'abcdef', 'g';
    },
    'buffer_in_buffer' => static function (): void {
        ob_start(static function (string $text): string {
            @ob_start();
            return "($text)";
        });
        echo 'x';
    },
    'gzip_handler' => static function (): void {
        ob_start('ob_gzhandler');
        ini_set('zlib.output_compression_level', '9');
        echo str_repeat('compressible', 100);
    },
    'implicit_flush' => static function (): void {
        ob_implicit_flush();
        echo 'a';
        echo 'b';
    },
    'status' => static function (): void {
        http_response_code(418);
        header('X-Own: 1');
        header('X-Own: 2', false);
        header_remove('X-Powered-By');
        setcookie('cookie', 'value', ['samesite' => 'Lax']);
        echo 'teapot';
    },
    'redirect' => static function (): void {
        header('Location: /elsewhere');
        exit;
    },
    'header_callback' => static function (): void {
        header_register_callback(static function (): void {
            header('X-Callback: called');
            http_response_code(202);
        });
        echo 'x';
    },
    'header_callback_throws' => static function (): void {
        header_register_callback(static function (): void {
            throw new LogicException('while headers are sent');
        });
        echo 'x';
    },
    'large_answer' => static function (): void {
        $block = str_repeat('0123456789abcdef', 4096);
        for ($i = 0; $i < 32; $i++) {
            echo $block;
        }
    },
    'flushed' => static function (): void {
        echo 'first ';
        flush();
        echo 'second';
        flush();
        header('X-Too-Late: 1');
    },
    'client_leaves' => static function (): void {
        $block = str_repeat('x', 65536);
        for ($i = 0; $i < 200; $i++) {
            echo $block;
            flush();
        }
    },
    'client_leaves_ignored' => static function (): void {
        ignore_user_abort(true);
        $block = str_repeat('x', 65536);
        for ($i = 0; $i < 200 && !connection_aborted(); $i++) {
            echo $block;
            flush();
        }
    },
    'finished_early' => static function (Boot $boot): void {
        echo 'answer';
        fastcgi_finish_request();
        echo 'unheard';
        Node::$register[] = new Node('after the end');
        $boot->list = [];
    },
    'finished_early_then_fatal' => static function (): void {
        echo 'answer';
        fastcgi_finish_request();
        undefined_function();
    },
    'finished_early_then_exit' => static function (): void {
        echo 'answer';
        fastcgi_finish_request();
        ini_set('precision', '1');
        exit('unheard');
    },
    'errors_to_stderr' => static function (): void {
        file_put_contents('php://stderr', "matrix: to stderr\n");
        error_log('matrix: to the log');
        $GLOBALS['kept'] = fopen('php://stderr', 'w');
    },
    'output_stream' => static function (): void {
        $GLOBALS['output'] = fopen('php://output', 'w');
        fwrite($GLOBALS['output'], 'through a stream');
        stream_filter_append($GLOBALS['output'], 'string.toupper');
        fwrite($GLOBALS['output'], ' and a filter');
    },
    'superglobals' => static function (): void {
        $_SESSION = ['faked' => true];
        $_COOKIE['x'] = $_REQUEST['y'] = $_ENV['z'] = 'leak';
        $_SERVER = [];
        echo count($_GET);
    },
];
