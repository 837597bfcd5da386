<?php
/*
 * auto_prepend_file of php-cgi: runs the test as worker.php does, inside a function, instead of as the script itself.
 * What fails for that alone is no fault of a server.
 */
function conformance_request(): void
{
    include getenv('SCRIPT_FILENAME');
}

conformance_request();
exit;
