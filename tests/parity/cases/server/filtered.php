<?php
require_once __DIR__ . '/../show.php';
$names = ['QUERY_STRING', 'REQUEST_URI', 'PATH_INFO', 'PHP_SELF', 'HTTP_X_T', 'HTTP_COOKIE', 'HTTP_AUTHORIZATION',
    'REMOTE_USER', 'PHP_AUTH_USER', 'PHP_AUTH_PW', 'REMOTE_ADDR', 'CONTENT_TYPE', 'REQUEST_TIME', 'PATH'];
$server = static function (string $when) use ($names): void {
    foreach ($names as $name) {
        show("$when $name", is_int($_SERVER[$name] ?? null) ? 'a number' : $_SERVER[$name] ?? null);
    }
};
if (isset($_GET['env'])) {
    foreach ($names as $name) {
        show("of the environment $name", is_int($_ENV[$name] ?? null) ? 'a number' : $_ENV[$name] ?? null);
    }
}
$server('before');
$_SERVER['HTTP_X_T'] = 'the script has been here';
foreach ($names as $name) {
    show("filtered $name", filter_input(INPUT_SERVER, $name));
    show("unsafe $name", filter_input(INPUT_SERVER, $name, FILTER_UNSAFE_RAW));
    show("has $name", filter_has_var(INPUT_SERVER, $name));
    show("getenv $name", getenv($name));
}
$server('after');
show('some', filter_input_array(INPUT_SERVER, ['QUERY_STRING' => FILTER_DEFAULT, 'HTTP_X_T' => FILTER_UNSAFE_RAW]));
show('all', getenv()['QUERY_STRING'] ?? null);
show('get', $_GET);
show('cookie', $_COOKIE);
foreach (['QUERY_STRING', 'PHP_SELF', 'PATH'] as $name) {
    show("of the environment $name", filter_input(INPUT_ENV, $name, FILTER_UNSAFE_RAW));
}
