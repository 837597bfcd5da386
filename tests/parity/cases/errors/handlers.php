<?php
set_error_handler(static function (int $level, string $message, string $file, int $line) {
    echo "error handler: $level $message, ", basename($file), ":$line\n";
    return true;
});
set_exception_handler(static function (Throwable $error) {
    if (isset($_GET['status'])) {
        http_response_code((int) $_GET['status']);
    }
    echo 'exception handler: ', get_class($error), ' ', $error->getMessage(), "\n";
});
echo $undefined;
trigger_error('mine', E_USER_NOTICE);
if (isset($_GET['rethrow'])) {
    set_exception_handler(static fn ($error) => throw new LogicException('thrown by the handler', 0, $error));
}
throw new RuntimeException('uncaught');
