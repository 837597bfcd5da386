<?php
register_shutdown_function(static function () {
    echo "first\n";
    header('X-Shutdown: 1');
    register_shutdown_function(static function () {
        echo "nested\n";
    });
});
register_shutdown_function(static function (string ...$arguments) {
    echo 'second ', implode(',', $arguments), "\n";
    if (isset($_GET['exit'])) {
        exit("exit in shutdown\n");
    }
}, 'a', 'b');
register_shutdown_function(static function () {
    echo "third\n";
    http_response_code(202);
});
echo "body\n";
match ($_GET['end'] ?? '') {
    'exit' => exit("exit\n"),
    'throw' => throw new Exception('parity: thrown'),
    'error' => undefined_function_of_parity(),
    default => null,
};
