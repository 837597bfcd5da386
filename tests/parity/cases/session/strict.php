<?php
require_once __DIR__ . '/../show.php';
ini_set('session.use_strict_mode', $_GET['strict']);
session_start();
show('kept', session_id() === $_COOKIE['PHPSESSID']);
session_destroy();
