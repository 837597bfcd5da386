<?php
/* The answer ends with fastcgi_finish_request(), the script goes on. */
require_once __DIR__ . '/../show.php';
$file = sys_get_temp_dir() . '/parity-finish';
if (isset($_GET['read'])) {
    readfile($file);
    unlink($file);
    return;
}
header('X-Before: 1');
show('exists', function_exists('fastcgi_finish_request'));
echo "the answer\n";
if (isset($_GET['session'])) {
    session_start();
    $_SESSION['finished'] = true;
}
$result = fastcgi_finish_request();
ob_start();
usleep(300000);
show('result', $result);
show('again', fastcgi_finish_request());
show('headers_sent', headers_sent());
show('header', @header('X-After: 1'));
show('status', connection_status());
show('aborted', connection_aborted());
show('session', session_status() === PHP_SESSION_ACTIVE);
file_put_contents($file, ob_get_clean());
echo 'lost';
