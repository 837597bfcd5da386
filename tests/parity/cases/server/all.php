<?php
require_once __DIR__ . '/../show.php';
$server = $_SERVER;
unset($server['REQUEST_TIME'], $server['REQUEST_TIME_FLOAT']);
ksort($server);
show('server', $server);
