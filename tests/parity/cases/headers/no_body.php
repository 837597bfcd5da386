<?php
http_response_code((int) $_GET['code']);
header('X-Still: here');
header('ETag: "abc"');
if (isset($_GET['echo'])) {
    echo 'this must not arrive';
}
