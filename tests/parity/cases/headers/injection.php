<?php
require_once __DIR__ . '/../show.php';
set_error_handler(static function (int $level, string $message) {
    show('warning', $message);
    return true;
});
foreach (["X-A: 1\r\nX-Injected: 1", "X-B: 1\nX-Injected: 2", "X-C: 1\rX-Injected: 3", "X-D: 1\0X-Injected: 4", "X-E: folded\r\n value",
    "Location: /x\r\nSet-Cookie: a=b", "HTTP/1.1 200 OK\r\nX-Injected: 5"] as $header) {
    header($header);
}
try {
    setcookie('a', "b\r\nX-Injected: 6");
    setcookie('p', 'v', 0, "/\r\nX-Injected: 7");
} catch (ValueError $error) {
    show('error', $error->getMessage());
}
show('list', headers_list());
