<?php
header('Content-Type: application/octet-stream');
$block = '';
for ($number = 0; $number < 1024; $number++) {
    $block .= hash('sha512', "block $number", true);
}
if (isset($_GET['length'])) {
    header('Content-Length: ' . strlen($block) * 80);
}
for ($number = 0; $number < 80; $number++) {
    echo $block;
}
