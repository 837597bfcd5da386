<?php
/* The status and headers leave with the first flush and cannot be taken back. */
http_response_code(201);
header('X-Early: 1');
echo 'a';
ob_flush();
flush();
@http_response_code(500);
@header('X-Late: 1');
throw new Exception('after the headers');
