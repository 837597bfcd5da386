<?php
/*
 * A worker script for any document root: each request runs the script that its URL names, as php-fpm would run it.
 *
 * It boots nothing. It exists so that scripts written for classic mode can be run in worker mode and compared. The
 * server has found the script already: it is $_SERVER['SCRIPT_FILENAME'], as in classic mode. What differs from classic
 * mode by construction: the script runs inside a function (its variables are not globals), named functions and classes
 * stay declared, and the process lives on after the request.
 */
(static function (): void {
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
        /* One request after the other until the server wants this worker to end. */
    }
})();
