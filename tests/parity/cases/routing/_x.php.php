<?php
require_once __DIR__ . '/../show.php';
foreach (['SCRIPT_NAME', 'SCRIPT_FILENAME', 'PHP_SELF', 'PATH_INFO', 'REQUEST_URI', 'DOCUMENT_URI', 'QUERY_STRING'] as $key) {
    show($key, $_SERVER[$key] ?? null);
}
show('__FILE__', __FILE__);
