<?php
require_once __DIR__ . '/../../show.php';
foreach (['REQUEST_METHOD', 'SCRIPT_NAME', 'SCRIPT_FILENAME', 'PHP_SELF', 'PATH_INFO', 'REQUEST_URI', 'DOCUMENT_URI', 'DOCUMENT_ROOT',
    'QUERY_STRING', 'REDIRECT_STATUS', 'REDIRECT_URL', 'ORIG_SCRIPT_NAME'] as $key) {
    show($key, $_SERVER[$key] ?? null);
}
show('get', $_GET);
show('post', $_POST);
show('files', array_column($_FILES, 'name'));
show('cookie', $_COOKIE);
show('cwd', getcwd());
if (str_starts_with($_SERVER['REQUEST_URI'], '/not-found')) {
    http_response_code(404);
}
