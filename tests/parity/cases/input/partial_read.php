<?php
require_once __DIR__ . '/../show.php';
/* A script that reads only a part of the body, or nothing, still gets its answer through. */
$bytes = (int) ($_GET['read'] ?? 0);
show('read', $bytes > 0 ? fread(fopen('php://input', 'r'), $bytes) : 'nothing');
