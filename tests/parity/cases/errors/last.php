<?php
require_once __DIR__ . '/../show.php';
register_shutdown_function(static function () {
    $last = error_get_last();
    show('type', $last['type'] ?? null);
    show('message', strtok($last['message'] ?? '', "\n"));
    http_response_code(503);
    header('X-Handled: 1');
});
show('none', error_get_last());
@file_get_contents('/nonexistent');
show('silenced', error_get_last()['message']);
error_clear_last();
show('cleared', error_get_last());
undefined_function_of_parity();
