<?php
echo "before\n";
match ($_GET['what']) {
    'exception' => throw new RuntimeException('a message', 42, new LogicException('the cause')),
    'error' => throw new Error('an error'),
    'function' => undefined_function_of_parity(),
    'method' => (new stdClass())->method(),
    'null' => (static fn ($nothing) => $nothing->method())(null),
    'type' => strlen([]),
    'arguments' => str_replace('one'),
    'division' => intdiv(1, 0),
    'modulo' => 1 % 0,
    'match' => match (1) { 2 => 3 },
    'class' => new MissingClassOfParity(),
    'constant' => MISSING_CONSTANT_OF_PARITY,
    'require' => require '/nonexistent/file.php',
    'readonly' => (static function () { $o = new class { public readonly int $x; public function __construct() { $this->x = 1; } }; $o->x = 2; })(),
    'user' => trigger_error('a user error', E_USER_ERROR),
    'json' => json_decode('{', false, 512, JSON_THROW_ON_ERROR),
    'html' => throw new Exception('<b>&"\' in a message'),
};
echo "after\n";
