<?php
if (($_SERVER['PHP_AUTH_USER'] ?? '') !== 'user') {
    header('WWW-Authenticate: Basic realm="Parity"');
    header('HTTP/1.0 401 Unauthorized');
    exit('who are you?');
}
echo 'hello ', $_SERVER['PHP_AUTH_USER'], ' ', $_SERVER['PHP_AUTH_PW'];
