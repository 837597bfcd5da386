<?php
header('Access-Control-Allow-Origin: *');
if ($_SERVER['REQUEST_METHOD'] === 'OPTIONS') {
    header('Access-Control-Allow-Methods: GET, POST, OPTIONS');
    header('Allow: GET, POST, OPTIONS');
    http_response_code(204);
    exit;
}
echo 'ok';
