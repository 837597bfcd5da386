<?php
require_once __DIR__ . '/../show.php';
$stream = fopen('php://input', 'r');
$lines = 0;
$bytes = 0;
while (($line = fgets($stream)) !== false) {
    $lines++;
    $bytes += strlen($line);
}
show('lines', $lines);
show('bytes', $bytes);
