<?php
if (isset($_SERVER['HTTP_RANGE'])) {
    http_response_code(206);
    header('Content-Range: bytes 2-4/10');
    header('Content-Length: 3');
    echo '234';
} else {
    header('Content-Length: 10');
    echo '0123456789';
}
