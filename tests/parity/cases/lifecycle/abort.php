<?php
/* The client goes away while the script prints; what the script then sees is read by a second request. */
$file = sys_get_temp_dir() . '/parity-abort';
if (isset($_GET['read'])) {
    for ($end = microtime(true) + 30; !is_file($file) && microtime(true) < $end; usleep(2000)) {
        clearstatcache();
    }
    readfile($file);
    unlink($file);
    return;
}
header('X-Accel-Buffering: no');
ignore_user_abort(isset($_GET['ignore']));
register_shutdown_function(static function () use ($file, &$reached) {
    file_put_contents("$file-new", sprintf("shutdown: %s, status %d, aborted %d\n", $reached ? 'reached the end' : 'stopped before the end',
        connection_status(), connection_aborted()));
    rename("$file-new", $file);
});
$reached = false;
for ($turn = 0; $turn < 150; $turn++) {
    echo str_repeat('x', 5000), "\n";
    ob_flush();
    flush();
    usleep(10000);
}
$reached = true;
