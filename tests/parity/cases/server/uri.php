<?php
require_once __DIR__ . '/../show.php';
foreach (['REQUEST_URI', 'SCRIPT_NAME', 'PHP_SELF', 'PATH_INFO', 'DOCUMENT_URI', 'QUERY_STRING', 'HTTP_HOST'] as $key) {
    show($key, $_SERVER[$key] ?? null);
}
