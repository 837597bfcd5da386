<?php
/*
 * The application of the matrix: a boot that holds a bit of everything a process can hold, and one handler for each kind
 * of misbehaviour (kinds/). A request names its kind and its own number:
 *
 *   /?kind=NAME&id=NUMBER     X-Fingerprint: what the request found when it began; X-Memory: memory in use then
 *   /?list                    the kinds
 *   /?jit                     what OPcache says of machine code
 *
 * The environment: MATRIX_DIR is a directory of the test's, MATRIX_HTTP a URL on this machine that answers "pong".
 * In MATRIX_DIR/witness each request leaves "s NUMBER" from a shutdown function and "d NUMBER" from a destructor.
 *
 * Under a server that knows no hayate_handle_request() the script serves one request and ends. So php-fpm says what the
 * answers have to be.
 */
declare(strict_types=1);

require __DIR__ . '/boot.php';
require __DIR__ . '/fingerprint.php';

$kinds = [];
foreach (['endings', 'state', 'settings', 'resources', 'engine', 'output'] as $theme) {
    $kinds += require __DIR__ . "/kinds/$theme.php";
}
unset($theme);

$boot = Boot::$it = new Boot((string) getenv('MATRIX_DIR'));

$handler = static function () use ($kinds): void {
    if (isset($_GET['list'])) {
        echo json_encode(array_keys($kinds));
        return;
    }
    if (isset($_GET['jit'])) {
        echo json_encode(opcache_get_status(false)['jit']);
        return;
    }
    $memory = memory_get_usage();
    header('X-Fingerprint: ' . Fingerprint::take());
    header('X-Memory: ' . $memory);
    header('X-Pid: ' . getmypid());
    $id = (string) $_GET['id'];
    $witness = Boot::$it->dir . '/witness';
    register_shutdown_function(static function () use ($id, $witness): void {
        file_put_contents($witness, "s $id\n", FILE_APPEND);
    });
    $GLOBALS['witness'] = new Witness($witness, "d $id\n");
    $kinds[$_GET['kind']](Boot::$it);
};

while (hayate_handle_request($handler)) {
    /* Rewinding takes place in that call. */
}
