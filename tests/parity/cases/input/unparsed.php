<?php
require_once __DIR__ . '/../show.php';
show('post', $_POST);
show('files', $_FILES);
show('type', $_SERVER['CONTENT_TYPE']);
show('input', file_get_contents('php://input'));
