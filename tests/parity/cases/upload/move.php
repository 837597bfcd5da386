<?php
require_once __DIR__ . '/../show.php';
$from = $_FILES['f']['tmp_name'];
$to = sys_get_temp_dir() . '/parity-moved-' . getmypid();
show('is uploaded', is_uploaded_file($from));
show('this script', is_uploaded_file(__FILE__));
show('move this script', move_uploaded_file(__FILE__, $to));
show('nowhere', @move_uploaded_file($from, '/nonexistent/directory/file'));
show('still uploaded', is_uploaded_file($from));
show('move', move_uploaded_file($from, $to));
show('content', file_get_contents($to));
show('permissions', decoct(fileperms($to) & 0777));
show('gone', [file_exists($from), is_uploaded_file($from), move_uploaded_file($from, $to)]);
unlink($to);
