<?php
/* What was printed before a fatal error, and which status it got. */
echo str_repeat('x', (int) $_GET['bytes']), "\n";
if (isset($_GET['flush'])) {
    ob_flush();
    flush();
}
if (isset($_GET['status'])) {
    http_response_code((int) $_GET['status']);
}
undefined_function_of_parity();
