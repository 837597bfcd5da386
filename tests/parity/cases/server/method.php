<?php
require_once __DIR__ . '/../show.php';
show('method', $_SERVER['REQUEST_METHOD']);
show('post', $_POST);
show('input', file_get_contents('php://input'));
