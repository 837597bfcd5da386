<?php
require_once __DIR__ . '/../show.php';
ob_start(static fn (string $text, int $phase) => strtoupper($text) . sprintf("[phase %d]\n", $phase));
echo "some text\n";
ob_flush();
echo "more text\n";
ob_start(static fn (string $text) => strrev($text), 4);
echo 'abcdef';
echo 'ghijkl';
ob_end_flush();
ob_start(static fn () => false);
echo "a callback that fails leaves the text\n";
ob_end_flush();
ob_start(static function (string $text) {
    header('X-From-Callback: 1');
    return $text . 'last';
});
if (isset($_GET['exit'])) {
    exit("exit\n");
}
