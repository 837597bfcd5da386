<?php
require_once __DIR__ . '/../show.php';
$headers = array_filter($_SERVER, static fn ($key) => str_starts_with($key, 'HTTP_'), ARRAY_FILTER_USE_KEY);
ksort($headers);
show('header', $headers);
