<?php
require_once __DIR__ . '/../show.php';
foreach (['getallheaders', 'apache_request_headers', 'apache_response_headers'] as $function) {
    show($function, function_exists($function));
}
$headers = getallheaders();
ksort($headers);
show('getallheaders', $headers);
$same = apache_request_headers();
ksort($same);
show('the same', $same === $headers);
header('X-One: 1');
header('X-Two: a');
header('X-Two: b', false);
if (function_exists('apache_response_headers')) {
    $response = apache_response_headers();
    ksort($response);
    show('apache_response_headers', $response);
}
