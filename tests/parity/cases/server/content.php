<?php
require_once __DIR__ . '/../show.php';
foreach (['CONTENT_TYPE', 'CONTENT_LENGTH', 'HTTP_CONTENT_TYPE', 'HTTP_CONTENT_LENGTH', 'HTTP_TRANSFER_ENCODING', 'HTTP_EXPECT'] as $key) {
    show($key, $_SERVER[$key] ?? null);
}
show('input', file_get_contents('php://input'));
