<?php
require_once __DIR__ . '/../show.php';
foreach (['REQUEST_METHOD', 'QUERY_STRING', 'HTTP_X_TEST', 'SCRIPT_NAME', 'DOCUMENT_ROOT', 'PHP_SELF', 'REMOTE_ADDR', 'nothing'] as $key) {
    show("server $key", filter_input(INPUT_SERVER, $key));
}
show('server time', is_string(filter_input(INPUT_SERVER, 'REQUEST_TIME')));
show('has', filter_has_var(INPUT_SERVER, 'REQUEST_METHOD'));
show('get', filter_input(INPUT_GET, 'n', FILTER_VALIDATE_INT));
show('get array', filter_input(INPUT_GET, 'list', FILTER_DEFAULT, FILTER_REQUIRE_ARRAY));
show('get bad', filter_input(INPUT_GET, 'bad', FILTER_VALIDATE_INT));
show('get html', filter_input(INPUT_GET, 'html', FILTER_SANITIZE_SPECIAL_CHARS));
show('post', filter_input(INPUT_POST, 'p'));
show('cookie', filter_input(INPUT_COOKIE, 'c'));
show('env', filter_input(INPUT_ENV, 'HOME'));
$_GET['n'] = 'changed by the script';
show('get still', filter_input(INPUT_GET, 'n'));
show('all', filter_input_array(INPUT_GET));
