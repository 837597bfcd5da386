<?php
header('Last-Modified: Wed, 21 Oct 2015 07:28:00 GMT');
header('ETag: "version-1"');
header('Cache-Control: max-age=60, public');
header('Expires: Wed, 21 Oct 2065 07:28:00 GMT');
header('Accept-Ranges: bytes');
header('Content-Disposition: attachment; filename="naïve.txt"');
if (($_SERVER['HTTP_IF_NONE_MATCH'] ?? '') === '"version-1"') {
    http_response_code(304);
    exit;
}
echo 'the whole body';
