<?php
require_once __DIR__ . '/../show.php';
foreach (['HTTPS', 'REQUEST_SCHEME', 'REMOTE_ADDR', 'SERVER_NAME', 'HTTP_HOST', 'HTTP_X_FORWARDED_FOR',
    'HTTP_X_FORWARDED_PROTO', 'HTTP_X_FORWARDED_HOST', 'HTTP_X_FORWARDED_PORT', 'HTTP_FORWARDED', 'HTTP_X_REAL_IP'] as $key) {
    show($key, $_SERVER[$key] ?? null);
}
