<?php
/* set_time_limit() counts the processor's time. */
register_shutdown_function(static function () {
    echo 'shutdown, status ', connection_status(), ', ', error_get_last()['message'] ?? 'no error', "\n";
});
set_time_limit(1);
if (isset($_GET['sleep'])) {
    usleep(1200000);
    echo "slept\n";
    return;
}
for (;;) {
    $sum = ($sum ?? 0) + 1;
}
