<?php
require_once __DIR__ . '/../show.php';
foreach (['REQUEST_METHOD', 'QUERY_STRING', 'HTTP_HOST', 'HTTP_X_TEST', 'REMOTE_ADDR', 'SCRIPT_FILENAME', 'DOCUMENT_ROOT', 'NOTHING'] as $key) {
    show($key, getenv($key));
}
show('PATH', getenv('PATH'));
show('local PATH', is_string(getenv('PATH', true)));
$all = getenv();
show('all has the request', isset($all['REQUEST_METHOD'], $all['HTTP_HOST']));
show('_ENV', $_ENV);
