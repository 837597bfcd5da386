<?php
$length = $_GET['length'];
header("Content-Length: $length");
if (isset($_GET['twice'])) {
    header('Content-Length: 5', false);
}
if (isset($_GET['flush'])) {
    echo '12345';
    ob_flush();
    flush();
    echo '67890';
} else {
    echo '1234567890';
}
