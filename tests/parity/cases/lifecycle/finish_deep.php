<?php
/* Open buffers are part of the answer; a failure afterwards is not. */
ob_start();
ob_start(static fn ($text) => strtoupper($text));
echo "in buffers\n";
register_shutdown_function(static function () {
    echo 'lost too';
    error_log('parity: shutdown after finish');
});
fastcgi_finish_request();
if (isset($_GET['exit'])) {
    exit('lost');
}
throw new Exception('parity: after finish');
