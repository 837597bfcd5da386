<?php
require_once __DIR__ . '/../show.php';
/* A request may scribble over every superglobal; the next one must not see it. */
show('seen', [$_SERVER['SCRIBBLE'] ?? null, $_GET['scribble'] ?? null, $_POST['scribble'] ?? null, $_COOKIE['scribble'] ?? null,
    $_REQUEST['scribble'] ?? null, $_FILES['scribble'] ?? null, $_ENV['scribble'] ?? null]);
$_SERVER['SCRIBBLE'] = $_GET['scribble'] = $_POST['scribble'] = $_COOKIE['scribble'] = $_REQUEST['scribble'] = $_FILES['scribble'] = 'here';
$_ENV['scribble'] = 'here';
unset($_SERVER['REQUEST_METHOD']);
show('method', $_SERVER['REQUEST_METHOD'] ?? 'gone');
