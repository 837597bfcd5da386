<?php
/* W1 in worker mode: the answer of index.php. */
$handler = static function (): void {
    header('Content-Type: application/json');
    echo '{"status":"OK"}';
};
while (hayate_handle_request($handler)) {
    /* until the server wants this worker to end */
}
