<?php
/* Two halves with a pause between them: flush() reaches the client. */
header('Content-Type: text/plain');
header('X-Accel-Buffering: no');
echo "first\n";
if (isset($_GET['implicit'])) {
    ob_end_flush();
    ob_implicit_flush();
    echo "second\n";
} else {
    ob_flush();
    flush();
}
usleep(800000);
echo "last\n";
