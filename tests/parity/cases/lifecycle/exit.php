<?php
ob_start();
$text = new class {
    public function __toString(): string
    {
        exit("exit in __toString\n");
    }
};
$generator = static function () {
    yield 1;
    exit("exit in a generator\n");
};
echo "before\n";
switch ($_GET['how'] ?? '') {
    case 'plain': exit;
    case 'status': exit(3);
    case 'zero': exit(0);
    case 'string': exit("a string\n");
    case 'number': exit('7');
    case 'empty': die('');
    case 'closure': (static function () { exit("in a closure\n"); })();
    case 'include': include __DIR__ . '/_exit.php'; break;
    case 'eval': eval('exit("in eval\n");'); break;
    case 'string_cast': echo "value: $text"; break;
    case 'generator': foreach ($generator() as $item) { echo "item $item\n"; } break;
    case 'sort': $list = [2, 1]; usort($list, static fn () => exit("in usort\n")); break;
    case 'handler': set_error_handler(static fn () => exit("in an error handler\n")); echo $undefined; break;
    case 'exception_handler': set_exception_handler(static fn () => exit("in an exception handler\n")); throw new Exception('x');
    case 'autoload': spl_autoload_register(static fn ($class) => exit("autoloading $class\n")); new MissingClassOfParity(); break;
    case 'output': ob_start(static fn ($text) => "callback saw: $text"); echo "inner\n"; exit("left\n");
    case 'finally': try { exit("in try\n"); } finally { echo "finally must not run\n"; }
    case 'destructor': $object = new class { public function __destruct() { echo "destructor\n"; } }; exit("then\n");
    case 'nested': register_shutdown_function(static fn () => exit("in shutdown\n")); exit("first\n");
    case 'code': http_response_code(404); exit("not found\n");
    case 'location': header('Location: /x'); exit;
    case 'fiber': (new Fiber(static fn () => exit("in a fiber\n")))->start(); break;
}
echo "after\n";
