<?php
require_once __DIR__ . '/../show.php';
session_start();
$key = ini_get('session.upload_progress.prefix') . 'parity';
show('enabled', ini_get('session.upload_progress.enabled'));
$progress = $_SESSION[$key] ?? null;
if ($progress !== null) {
    unset($progress['start_time'], $progress['bytes_processed']);
    foreach ($progress['files'] as &$file) {
        unset($file['start_time']);
    }
}
show('progress', $progress);
show('post', $_POST);
show('files', array_column($_FILES, 'name'));
