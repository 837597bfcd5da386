<?php
require_once __DIR__ . '/../show.php';
session_start(isset($_GET['read']) ? ['read_and_close' => true] : []);
show('value', $_SESSION['value'] ?? null);
show('status', session_status());
match ($_GET['do'] ?? '') {
    'set' => $_SESSION['value'] = $_GET['value'],
    'abort' => [$_SESSION['value'] = 'aborted', session_abort()],
    'reset' => [$_SESSION['value'] = 'reset', session_reset()],
    'close' => [$_SESSION['value'] = 'closed', session_write_close(), $_SESSION['value'] = 'too late'],
    'reopen' => [session_write_close(), session_start(), $_SESSION['value'] = 'reopened'],
    'exit' => [$_SESSION['value'] = 'exit', exit],
    'error' => [$_SESSION['value'] = 'error', undefined_function_of_parity()],
    'timeout' => [$_SESSION['value'] = 'memory', ini_set('memory_limit', '4M'), str_repeat('x', 100_000_000)],
    'shutdown' => register_shutdown_function(static fn () => $_SESSION['value'] = 'shutdown'),
    default => null,
};
