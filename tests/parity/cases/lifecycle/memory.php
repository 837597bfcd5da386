<?php
require_once __DIR__ . '/../show.php';
show('limit', ini_get('memory_limit'));
ini_set('memory_limit', '8M');
register_shutdown_function(static function () {
    $message = error_get_last()['message'] ?? '';
    echo preg_replace('/\d+ bytes\)$/', 'N bytes)', $message), "\n";
});
$list = [];
if (isset($_GET['string'])) {
    $list = str_repeat('x', 100_000_000);
}
for ($number = 0; ; $number++) {
    $list[] = str_repeat('x', 10000) . $number;
}
