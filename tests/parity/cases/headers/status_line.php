<?php
$lines = [
    'custom' => 'HTTP/1.1 404 Custom Reason',
    'old' => 'HTTP/1.0 410 Gone Forever',
    'unknown' => 'HTTP/1.1 299 Unheard Of',
    'bare' => 'HTTP/1.1 404',
    'ok' => 'HTTP/1.1 200 Fine',
    'status' => 'Status: 404',
    'status_reason' => 'Status: 404 My Reason',
    'status_lower' => 'status: 503',
    'protocol' => $_SERVER['SERVER_PROTOCOL'] . ' 403 Forbidden',
    'http2' => 'HTTP/2 404 Not Found',
    'utf8' => 'HTTP/1.1 404 Nicht gefündet',
    'word' => 'HTTP/1.1 abc',
    'big' => 'HTTP/1.1 999 Too Much',
];
header($lines[$_GET['line']]);
echo var_export(http_response_code(), true), "\n";
