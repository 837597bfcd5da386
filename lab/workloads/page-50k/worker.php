<?php
/* The answer of public/index.php, from a worker that stays. */
require __DIR__.'/page.php';
$handler = static function (): void {
    header('Content-Type: text/html; charset=utf-8');
    page(static function (string $line): void {
        echo $line;
    });
};
while (hayate_handle_request($handler)) {
    /* until the server wants this worker to end */
}
