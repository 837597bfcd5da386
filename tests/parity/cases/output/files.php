<?php
require_once __DIR__ . '/../show.php';
$file = __DIR__ . '/_data.txt';
show('readfile', readfile($file));
$stream = fopen($file, 'r');
fseek($stream, 5);
show('fpassthru', fpassthru($stream));
show('copy', stream_copy_to_stream(fopen($file, 'r'), fopen('php://output', 'w')));
