<?php
require_once __DIR__ . '/../show.php';
session_start();
show('seen', $_SESSION['seen'] ?? null);
$_SESSION['seen'] = 'yes';
$old = session_id();
show('regenerated', session_regenerate_id(isset($_GET['delete'])));
show('another', session_id() !== $old);
show('old file', file_exists(session_save_path() . '/sess_' . $old));
