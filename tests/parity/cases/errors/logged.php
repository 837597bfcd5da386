<?php
ini_set('display_errors', '0');
if (isset($_GET['file'])) {
    $file = sys_get_temp_dir() . '/parity-error-log';
    ini_set('error_log', $file);
    error_log('to a file');
    echo preg_replace('/\[.*?\]/', '[time]', file_get_contents($file));
    unlink($file);
    error_log("to a file of its own\n", 3, $file);
    echo file_get_contents($file);
    unlink($file);
    return;
}
if (isset($_GET['off'])) {
    ini_set('log_errors', '0');
    trigger_error('parity: never logged', E_USER_WARNING);
    echo 'off';
    return;
}
trigger_error('parity: a warning logged', E_USER_WARNING);
echo 'done';
