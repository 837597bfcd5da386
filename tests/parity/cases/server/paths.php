<?php
require_once __DIR__ . '/../show.php';
foreach (['PHP_SELF', 'PATH_INFO', 'PATH_TRANSLATED', 'ORIG_PATH_INFO', 'ORIG_PATH_TRANSLATED', 'ORIG_SCRIPT_NAME',
    'ORIG_SCRIPT_FILENAME', 'SCRIPT_NAME', 'SCRIPT_FILENAME', 'SCRIPT_URL', 'DOCUMENT_URI', 'DOCUMENT_ROOT',
    'REQUEST_URI', 'QUERY_STRING', 'CONTEXT_PREFIX', 'REDIRECT_URL', 'REDIRECT_STATUS', 'REDIRECT_QUERY_STRING'] as $key) {
    show($key, $_SERVER[$key] ?? null);
}
show('__FILE__', __FILE__);
show('__DIR__', __DIR__);
show('getcwd', getcwd());
