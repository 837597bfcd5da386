<?php
/* The last word on the status wins, whichever way it was said. */
foreach (explode(',', $_GET['do']) as $step) {
    match ($step) {
        'code' => http_response_code(418),
        'good' => http_response_code(200),
        'redirect' => header('HTTP/1.1 302 Custom'),
        'same' => header('HTTP/1.1 304 Not Modified'),
        'line' => header('HTTP/1.1 410 Custom'),
        'third' => header('X-A: b', true, 402),
        'status' => header('Status: 451 Why'),
        'location' => header('Location: /x'),
        'remove' => header_remove('Location'),
    };
}
echo var_export(http_response_code(), true), "\n";
