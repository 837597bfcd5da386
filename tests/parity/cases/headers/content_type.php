<?php
if (isset($_GET['charset'])) {
    ini_set('default_charset', $_GET['charset']);
}
if (isset($_GET['mimetype'])) {
    ini_set('default_mimetype', $_GET['mimetype']);
}
if (isset($_GET['type'])) {
    header('Content-Type: ' . $_GET['type']);
}
if (isset($_GET['lower'])) {
    header('content-type: ' . $_GET['lower']);
}
if (isset($_GET['twice'])) {
    header('Content-Type: ' . $_GET['twice'], false);
}
echo implode("\n", headers_list()), "\n";
