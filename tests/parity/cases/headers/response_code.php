<?php
require_once __DIR__ . '/../show.php';
show('get', http_response_code());
if (isset($_GET['code'])) {
    show('set', http_response_code((int) $_GET['code']));
    show('now', http_response_code());
}
