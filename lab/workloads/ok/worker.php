<?php
/* The answer of public/index.php, from a worker that stays. */
$handler = static function (): void {
    echo 'ok';
};
while (hayate_handle_request($handler)) {
    /* until the server wants this worker to end */
}
