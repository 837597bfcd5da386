<?php
/* The answer, once per request. */
header('Content-Type: application/json');
echo '{"status":"OK"}';
