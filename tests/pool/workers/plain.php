<?php

/** As FrankenPHP's users write one by hand: a for loop that ends by itself or when it is told to. */

require __DIR__.'/application.php';

ignore_user_abort(true);
$application = new Application();
$handler = static function () use ($application) {
    echo $application->handle($_GET);
};
$most = (int) ($_SERVER['MAX_REQUESTS'] ?? 0);
for ($n = 0; !$most || $n < $most; ++$n) {
    $goes = \frankenphp_handle_request($handler);
    $application->terminate($_GET);
    gc_collect_cycles();
    if (!$goes) {
        break;
    }
}
$application->shutdown();
