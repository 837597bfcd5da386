<?php
/* The first 4096 bytes wait in a buffer, so a header may still follow; later it may not. */
echo str_repeat('x', (int) $_GET['bytes']);
header('X-After: ' . $_GET['bytes']);
http_response_code(203);
