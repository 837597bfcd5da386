<?php
/* The answer ends with fastcgi_finish_request(), the script goes on: once its visitor has the answer, and asks for what came of it. */
require_once __DIR__ . '/../show.php';
$file = sys_get_temp_dir() . '/parity-finish';
$until = static function (string $path): void {
    for ($end = microtime(true) + 30; !is_file($path) && microtime(true) < $end; usleep(2000)) {
        clearstatcache();
    }
};
if (isset($_GET['read'])) {
    touch("$file-go");
    $until($file);
    readfile($file);
    unlink("$file-go");
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
$until("$file-go");
show('result', $result);
show('again', fastcgi_finish_request());
show('headers_sent', headers_sent());
show('header', @header('X-After: 1'));
show('status', connection_status());
show('aborted', connection_aborted());
show('session', session_status() === PHP_SESSION_ACTIVE);
file_put_contents("$file-new", ob_get_clean());
rename("$file-new", $file);
echo 'lost';
