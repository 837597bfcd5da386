<?php
require_once __DIR__ . '/../show.php';
session_start();
show('session', $_SESSION);
$_SESSION['key'] = 'value';
if (isset($_GET['destroy'])) {
    $_SESSION = [];
    $parameters = session_get_cookie_params();
    setcookie(session_name(), '', 1, $parameters['path']);
    show('destroy', session_destroy());
    show('status', session_status());
    show('id', session_id());
}
if (isset($_GET['unset'])) {
    show('unset', session_unset());
}
