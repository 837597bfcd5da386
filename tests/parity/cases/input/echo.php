<?php
header('Content-Type: ' . ($_SERVER['CONTENT_TYPE'] ?: 'application/octet-stream'));
echo file_get_contents('php://input');
