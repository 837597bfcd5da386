<?php
require_once __DIR__ . '/../show.php';
foreach (['HTTP_HOST', 'SERVER_NAME', 'SERVER_PORT', 'SERVER_ADDR', 'SERVER_PROTOCOL', 'HTTPS', 'REQUEST_SCHEME'] as $key) {
    show($key, $_SERVER[$key] ?? null);
}
