<?php
/* Server-sent events, the usual way. */
header('Content-Type: text/event-stream');
header('Cache-Control: no-cache');
header('X-Accel-Buffering: no');
while (ob_get_level() > 0) {
    ob_end_clean();
}
for ($event = 1; $event <= 3; $event++) {
    echo "id: $event\ndata: ", json_encode(['event' => $event]), "\n\n";
    flush();
    usleep(300000);
}
