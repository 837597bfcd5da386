<?php
require_once __DIR__ . '/../show.php';
show('error_reporting', error_reporting());
foreach (['display_errors', 'display_startup_errors', 'log_errors', 'html_errors', 'error_log', 'ignore_repeated_errors', 'xmlrpc_errors',
    'docref_root', 'error_prepend_string', 'zend.exception_ignore_args', 'zend.exception_string_param_max_len', 'report_memleaks'] as $key) {
    show($key, ini_get($key));
}
try {
    (static function (string $secret) { throw new Exception('x'); })('secret');
} catch (Exception $error) {
    show('arguments', $error->getTrace()[0]['args'] ?? 'ignored');
}
