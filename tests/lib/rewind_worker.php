<?php
/*
 * A worker script for any document root with rewind: each request runs the script that its URL names, as php-fpm would
 * run it. It puts nothing back by itself; that is the server's work here. By construction the script runs inside a
 * function: its variables are not globals.
 */
$handler = static function (): void {
    $script = $_SERVER['SCRIPT_FILENAME'];
    if (!is_file($script) || realpath($script) === __FILE__) {
        http_response_code(404);
        echo "File not found.\n";
        return;
    }
    chdir(dirname($script));
    (static function (): void {
        include func_get_arg(0);
    })($script);
};
while (hayate_handle_request($handler)) {
    /* Not reached more than once: the next call rewinds into the first. */
}
