<?php
require_once __DIR__ . '/../show.php';
echo "output first\n";
ob_flush();
flush();
show('start', @session_start());
show('error', error_get_last()['message'] ?? null);
