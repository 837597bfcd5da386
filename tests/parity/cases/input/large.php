<?php
require_once __DIR__ . '/../show.php';
$body = file_get_contents('php://input');
show('length', strlen($body));
show('md5', md5($body));
show('CONTENT_LENGTH', $_SERVER['CONTENT_LENGTH']);
show('post', array_map('strlen', $_POST));
