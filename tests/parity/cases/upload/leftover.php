<?php
require_once __DIR__ . '/../show.php';
/* Temporary files go with their request, however it ends. */
$list = sys_get_temp_dir() . '/parity-leftover';
if ($_FILES) {
    file_put_contents($list, $_FILES['f']['tmp_name']);
    show('there', file_exists($_FILES['f']['tmp_name']));
    match ($_GET['end'] ?? '') {
        'exit' => exit("exit\n"),
        'error' => undefined_function(),
        'throw' => throw new Exception('thrown'),
        default => null,
    };
} else {
    for ($end = microtime(true) + 30, $name = file_get_contents($list); file_exists($name) && microtime(true) < $end; usleep(2000)) {
        clearstatcache();
    }
    show('left', file_exists($name));
    unlink($list);
}
