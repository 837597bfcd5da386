<?php
require_once __DIR__ . '/../show.php';
show('register_argc_argv', ini_get('register_argc_argv'));
show('$_SERVER argv', $_SERVER['argv'] ?? null);
show('$_SERVER argc', $_SERVER['argc'] ?? null);
show('$argv', $GLOBALS['argv'] ?? null);
show('$argc', $GLOBALS['argc'] ?? null);
