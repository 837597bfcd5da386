<?php
require dirname(__DIR__).'/page.php';
header('Content-Type: text/html; charset=utf-8');
page(static function (string $line): void {
    echo $line;
});
