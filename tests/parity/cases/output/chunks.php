<?php
header('X-Accel-Buffering: no');
for ($part = 0; $part < 20; $part++) {
    echo str_repeat(chr(65 + $part), 1000 * $part), "\n";
    ob_flush();
    flush();
}
