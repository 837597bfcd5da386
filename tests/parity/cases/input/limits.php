<?php
require_once __DIR__ . '/../show.php';
show('get', $_GET);
show('post', $_POST);
show('cookie', $_COOKIE);
show('files', array_map(static fn ($file) => $file['error'], $_FILES));
show('input', strlen(file_get_contents('php://input')));
show('error', error_get_last());
