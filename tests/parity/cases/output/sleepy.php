<?php
/* flush() without output still sends the headers. */
header('X-Accel-Buffering: no');
header('X-Sent: early');
ob_end_clean();
flush();
echo headers_sent() ? "sent\n" : "not sent\n";
