<?php
require_once __DIR__ . '/../show.php';
match ($_GET['how'] ?? '') {
    'params' => session_set_cookie_params(['lifetime' => 600, 'path' => '/p', 'domain' => 'parity.test', 'secure' => true, 'httponly' => true, 'samesite' => 'Lax']),
    'name' => session_name('OTHER'),
    'id' => session_id('chosen-by-the-script'),
    'none' => ini_set('session.use_cookies', '0'),
    'length' => [ini_set('session.sid_length', '40'), ini_set('session.sid_bits_per_character', '4')],
    default => null,
};
session_start($_GET['how'] === 'options' ? ['cookie_path' => '/o', 'cookie_samesite' => 'Strict', 'name' => 'OPT'] : []);
show('name', session_name());
show('params', session_get_cookie_params());
show('id length', strlen(session_id()));
