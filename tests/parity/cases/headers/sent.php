<?php
require_once __DIR__ . '/../show.php';
show('before', headers_sent());
flush();
show('flush of nothing', headers_sent($file, $line));
ob_flush();
flush();
show('after', headers_sent($file, $line));
show('file', $file === __FILE__);
show('line', $line);
show('header', @header('X-Late: 1'));
show('code', http_response_code(500));
show('now', http_response_code());
show('cookie', @setcookie('late', '1'));
show('error', error_get_last()['message'] ?? null);
show('list', headers_list());
