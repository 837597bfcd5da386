<?php
require_once __DIR__ . '/../show.php';
header('X-Keep: 1');
header('X-Gone: 1');
header('X-Gone: 2', false);
setcookie('a', '1');
setcookie('b', '2');
header_remove('x-gone');
header_remove('X-Never');
if (isset($_GET['cookies'])) {
    header_remove('Set-Cookie');
}
if (isset($_GET['type'])) {
    header_remove('Content-Type');
}
if (isset($_GET['all'])) {
    header_remove();
}
if (isset($_GET['powered'])) {
    header_remove('X-Powered-By');
}
show('list', headers_list());
