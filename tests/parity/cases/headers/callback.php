<?php
require_once __DIR__ . '/../show.php';
show('registered', header_register_callback(static function () {
    header('X-Callback: ' . count(headers_list()));
    header_remove('X-Removed');
    http_response_code(202);
}));
header('X-Removed: 1');
header('X-Kept: 1');
show('body', 'here');
if (isset($_GET['exit'])) {
    exit;
}
