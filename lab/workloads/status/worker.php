<?php
/* The answer of public/index.php, from a worker that stays. */
$handler = static function (): void {
    header('Content-Type: application/json');
    echo '{"status":"OK"}';
};
while (hayate_handle_request($handler)) {
    /* until the server wants this worker to end */
}
