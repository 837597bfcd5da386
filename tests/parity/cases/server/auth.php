<?php
require_once __DIR__ . '/../show.php';
foreach (['PHP_AUTH_USER', 'PHP_AUTH_PW', 'PHP_AUTH_DIGEST', 'AUTH_TYPE', 'REMOTE_USER', 'HTTP_AUTHORIZATION',
    'HTTP_PROXY_AUTHORIZATION', 'REDIRECT_HTTP_AUTHORIZATION', 'Authorization'] as $key) {
    show($key, $_SERVER[$key] ?? null);
}
