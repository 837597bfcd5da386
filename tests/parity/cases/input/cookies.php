<?php
require_once __DIR__ . '/../show.php';
show('HTTP_COOKIE', $_SERVER['HTTP_COOKIE'] ?? null);
show('cookie', $_COOKIE);
