<?php
require_once __DIR__ . '/../show.php';
show('int', is_int($_SERVER['REQUEST_TIME']));
show('float', is_float($_SERVER['REQUEST_TIME_FLOAT']));
show('the same second', (int) $_SERVER['REQUEST_TIME_FLOAT'] === $_SERVER['REQUEST_TIME']);
show('now', abs(microtime(true) - $_SERVER['REQUEST_TIME_FLOAT']) < 2);
show('not after now', $_SERVER['REQUEST_TIME_FLOAT'] <= microtime(true));
show('microseconds', fmod($_SERVER['REQUEST_TIME_FLOAT'], 1) > 0);
