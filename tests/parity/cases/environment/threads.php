<?php
require_once __DIR__ . '/../show.php';
/* What may not be offered to a script of a web server. */
foreach (['cli_set_process_title', 'pcntl_fork', 'pcntl_exec', 'dl', 'fastcgi_finish_request', 'fpm_get_status', 'litespeed_finish_request',
    'readline', 'getallheaders', 'apache_setenv', 'virtual', 'sapi_windows_vt100_support'] as $function) {
    show($function, function_exists($function));
}
