<?php
require_once __DIR__ . '/../show.php';
show('variables_order', ini_get('variables_order'));
show('request_order', ini_get('request_order'));
show('request', $_REQUEST);
show('get', $_GET);
show('post', $_POST);
show('cookie', $_COOKIE);
show('files', $_FILES);
show('env has PATH', isset($_ENV['PATH']));
show('env is empty', $_ENV === []);
show('server is not empty', $_SERVER !== []);
