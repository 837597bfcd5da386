<?php
/*
 * Libraries made by the boot, or by the first request (LAZY), used by each: /?visitor=NAME hands in, /?arrived=A,B looks.
 * Their connections are opened by the requests, or by the boot or the worker's start (OPEN=boot, OPEN=start).
 * Under php-fpm the script boots for each request.
 */
declare(strict_types=1);

use App\Libraries;

require __DIR__ . '/autoload.php';

// What processes must not share: each worker then boots by itself.
$pair = Libraries::setting('PAIR') === '' ? null : stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
if (Libraries::setting('LAZY') === '') {
    Libraries::get();
}
if (Libraries::setting('OPEN') === 'boot') {
    Libraries::get()->open();
} elseif (Libraries::setting('OPEN') === 'start') {
    hayate_on_worker_start(static fn () => Libraries::get()->open());
}
$handler = static function (): void {
    if (isset($_GET['arrived'])) {
        echo json_encode(Libraries::get()->arrived(explode(',', $_GET['arrived'])));
        return;
    }
    header('Content-Type: text/html');
    echo json_encode(Libraries::get()->handIn($_GET['visitor'] ?? 'warm-up')), "\n";
};
while (hayate_handle_request($handler)) {
}
