<?php
require_once __DIR__ . '/../show.php';
show('first', file_get_contents('php://input'));
show('second', file_get_contents('php://input'));
show('offset', file_get_contents('php://input', false, null, 3));
show('post', $_POST);
$stream = fopen('php://input', 'r');
show('seek', [fseek($stream, 2), fread($stream, 4), ftell($stream), rewind($stream), fgets($stream), feof($stream)]);
show('meta', array_intersect_key(stream_get_meta_data($stream), ['mode' => 1, 'seekable' => 1, 'uri' => 1]));
show('write', @fwrite($stream, 'x'));
show('stat', @fstat($stream)['size'] ?? null);
