<?php
require_once __DIR__ . '/../show.php';
show('QUERY_STRING', $_SERVER['QUERY_STRING'] ?? null);
show('REQUEST_URI', $_SERVER['REQUEST_URI'] ?? null);
show('get', $_GET);
