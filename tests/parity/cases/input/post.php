<?php
require_once __DIR__ . '/../show.php';
show('type', $_SERVER['CONTENT_TYPE'] ?? null);
show('post', $_POST);
show('files', $_FILES);
show('input', file_get_contents('php://input'));
