<?php
/* What a script does beyond its first output must happen on HEAD as on GET. */
$file = sys_get_temp_dir() . '/parity-head';
if (isset($_GET['read'])) {
    for ($end = microtime(true) + 30; !str_contains((string) @file_get_contents($file), 'shutdown') && microtime(true) < $end; usleep(2000)) {
    }
    readfile($file);
    unlink($file);
    return;
}
header('X-Method: ' . $_SERVER['REQUEST_METHOD']);
file_put_contents($file, "start\n");
if (isset($_GET['length'])) {
    header('Content-Length: 11');
}
echo 'hello ';
ob_flush();
flush();
file_put_contents($file, "after flush\n", FILE_APPEND);
echo 'world';
register_shutdown_function(static fn () => file_put_contents($file, "shutdown\n", FILE_APPEND));
