<?php
require_once __DIR__ . '/../show.php';
show('before', session_status());
show('start', session_start());
$_SESSION['count'] = ($_SESSION['count'] ?? 0) + 1;
$_SESSION['object'] ??= new ArrayObject(['a' => 1]);
show('count', $_SESSION['count']);
show('object', get_class($_SESSION['object']));
show('name', session_name());
show('id', session_id() === ($_COOKIE['PHPSESSID'] ?? session_id()));
show('length', strlen(session_id()));
show('SID', SID === '' ? 'empty' : 'set');
show('status', session_status());
