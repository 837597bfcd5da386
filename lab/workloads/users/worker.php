<?php
/* The answer of public/index.php, from a worker that stays. */

declare(strict_types=1);

$answer = (require __DIR__.'/handler.php')();
$handler = static function () use ($answer): void {
    [$status, $headers, $body] = $answer($_SERVER['REQUEST_URI']);
    http_response_code($status);
    foreach ($headers as $name => $value) {
        header("$name: $value");
    }
    echo $body;
    if (isset($_SERVER['HAYATE_WARMUP'])) {
        // No visitor: a snapshot follows, and processes cannot share a connection.
        release();
    }
};
while (hayate_handle_request($handler)) {
    /* until the server wants this worker to end */
}
