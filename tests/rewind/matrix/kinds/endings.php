<?php
/* Ways for a request to end other than by returning. */
declare(strict_types=1);

final class Thrower
{
    public function __destruct()
    {
        throw new RuntimeException('from a destructor');
    }
}

final class Exiter
{
    public function __destruct()
    {
        exit('exit in a destructor');
    }
}

final class Failer
{
    public function __destruct()
    {
        (static fn(int $n): int => $n)('no number');
    }
}

final class Eater
{
    public function __destruct()
    {
        $eaten = str_repeat('x', 1 << 30);
    }
}

final class Maker
{
    public static int $depth = 0;

    public function __destruct()
    {
        if (self::$depth++ < 50) {
            $GLOBALS['made_by_destructor'][] = new Maker();
            Node::$register[] = new Maker();
        }
    }
}

function recurse_for_ever(array $with): array
{
    return recurse_for_ever([$with, str_repeat('x', 1000)]);
}

return [
    'plain' => static function (): void {
        echo 'ok';
    },
    'exit' => static function (): void {
        echo 'before';
        exit;
    },
    'exit_status' => static function (): void {
        exit(3);
    },
    'die_text' => static function (): void {
        die('dead');
    },
    'uncaught' => static function (): void {
        echo 'before';
        throw new LogicException('nobody catches this');
    },
    'uncaught_chain' => static function (): void {
        try {
            throw new LogicException('one');
        } finally {
            throw new RuntimeException('two');
        }
    },
    'type_error' => static function (): void {
        strlen([]);
    },
    'fatal_undefined' => static function (): void {
        Boot::$requests = 77;
        undefined_function();
    },
    'fatal_compile' => static function (): void {
        Boot::$requests = 78;
        eval('class Suit {}');
    },
    'fatal_redeclare' => static function (): void {
        eval('function counted() {}');
    },
    'fatal_abstract' => static function (): void {
        eval('final class F1 {} class F2 extends F1 {}');
    },
    'fatal_interface' => static function (): void {
        eval('class F3 implements Countable {}');
    },
    'parse_error' => static function (): void {
        eval('this is no PHP');
    },
    'user_error' => static function (): void {
        trigger_error('fatal by choice', E_USER_ERROR);
    },
    'memory_small_steps' => static function (): void {
        $all = [];
        for (;;) {
            $all[] = [count($all)];
        }
    },
    'memory_at_once' => static function (): void {
        $GLOBALS['huge'] = str_repeat('x', 1 << 30);
    },
    'memory_in_builtin' => static function (): void {
        range(1, 1 << 26);
    },
    'memory_in_shutdown' => static function (): void {
        register_shutdown_function(static function (): void {
            $all = [];
            for (;;) {
                $all[] = new stdClass();
            }
        });
    },
    'memory_in_destructor' => static function (): void {
        $GLOBALS['eater'] = new Eater();
    },
    'timeout' => static function (): void {
        set_time_limit(1);
        for (;;) {
            Boot::$requests++;
        }
    },
    'timeout_in_shutdown' => static function (): void {
        register_shutdown_function(static function (): void {
            set_time_limit(1);
            for (;;) {
            }
        });
    },
    'recursion' => static function (): void {
        recurse_for_ever([]);
    },
    'stack_overflow' => static function (): void {
        ini_set('memory_limit', '512M');
        $list = null;
        for ($i = 0; $i < 400000; $i++) {
            $node = new stdClass();
            $node->next = $list;
            $list = $node;
        }
        unset($node);
        $list = null;
        echo 'a large stack';
    },
    'segfault' => static function (): void {
        FFI::cdef('void *memset(void *to, int with, size_t size);')->memset(null, 1, 10);
    },
    'abort' => static function (): void {
        FFI::cdef('void abort(void);')->abort();
    },
    'kill_itself' => static function (): void {
        posix_kill(getmypid(), 9);
    },
    'exit_in_destructor' => static function (): void {
        $GLOBALS['exiter'] = new Exiter();
    },
    'exit_in_shutdown' => static function (): void {
        register_shutdown_function(static function (): void {
            echo 'one ';
            exit('two');
        });
        register_shutdown_function(static function (): void {
            echo 'never';
        });
    },
    'exit_in_exit' => static function (): void {
        register_shutdown_function(static function (): void {
            register_shutdown_function(static function (): void {
                echo 'inner';
                exit;
            });
            echo 'outer ';
        });
        exit('first ');
    },
    'exit_in_autoloader' => static function (): void {
        spl_autoload_register(static function (string $class): void {
            exit("no $class");
        });
        new Missing_Class();
    },
    'exit_in_error_handler' => static function (): void {
        set_error_handler(static function (): bool {
            exit('warned');
        });
        echo $undefined;
    },
    'exit_in_exception_handler' => static function (): void {
        set_exception_handler(static function (Throwable $thrown): void {
            exit('handled: ' . $thrown->getMessage());
        });
        throw new LogicException('it');
    },
    'exception_in_exception_handler' => static function (): void {
        set_exception_handler(static function (Throwable $thrown): void {
            throw $thrown;
        });
        throw new LogicException('it');
    },
    'exit_in_finally' => static function (): void {
        try {
            throw new LogicException('lost');
        } finally {
            exit('finally');
        }
    },
    'exit_in_generator' => static function (): void {
        $generator = (static function (): Generator {
            try {
                yield 1;
                exit('in a generator');
            } finally {
                echo 'not for exit';
            }
        })();
        foreach ($generator as $value) {
            echo $value;
        }
    },
    'exit_in_fiber' => static function (): void {
        (new Fiber(static function (): void {
            exit('in a fiber');
        }))->start();
    },
    'exit_in_include' => static function (Boot $boot): void {
        file_put_contents($file = tempnam($boot->dir, 'inc'), '<?php echo "included"; exit;');
        register_shutdown_function(unlink(...), $file);
        include $file;
    },
    'exit_in_sort' => static function (): void {
        $list = [3, 1, 2];
        usort($list, static fn(int $a, int $b): int => exit('sorting'));
    },
    'exception_in_destructor' => static function (): void {
        $GLOBALS['thrower'] = new Thrower();
        echo 'body';
    },
    'exception_in_many_destructors' => static function (): void {
        Node::$register[] = new Thrower();
        $GLOBALS['a'] = new Thrower();
        $GLOBALS['b'] = new Thrower();
        echo 'body';
    },
    'fatal_in_destructor' => static function (): void {
        $GLOBALS['failer'] = new Failer();
        echo 'body';
    },
    'destructors_that_make_objects' => static function (): void {
        new Maker();
        $GLOBALS['maker'] = new Maker();
    },
    'exception_in_shutdown' => static function (): void {
        register_shutdown_function(static function (): void {
            throw new LogicException('in a shutdown function');
        });
    },
    'fatal_in_shutdown' => static function (): void {
        register_shutdown_function(static function (): void {
            eval('class Suit {}');
        });
    },
    'shutdown_with_arguments' => static function (): void {
        register_shutdown_function(printf(...), '%s-%s', 'a', 'b');
    },
];
