<?php
if (isset($_GET['before'])) {
    http_response_code((int) $_GET['before']);
}
if (isset($_GET['third'])) {
    header('Location: /elsewhere', true, (int) $_GET['third']);
} else {
    header('Location: ' . ($_GET['to'] ?? '/elsewhere'));
}
if (isset($_GET['after'])) {
    http_response_code((int) $_GET['after']);
}
echo 'moved, status ', http_response_code(), "\n";
