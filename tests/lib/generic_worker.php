<?php
/*
 * A worker script for any document root: each request runs the script that its URL names, as php-fpm would run it.
 *
 * It boots nothing. It exists so that scripts written for classic mode can be run in worker mode and compared. The
 * server has found the script already: it is $_SERVER['SCRIPT_FILENAME'], as in classic mode. What differs from classic
 * mode by construction: the script runs inside a function (its variables are not globals), named functions and classes
 * stay declared, and the process lives on after the request. What PHP code can put back of the process's state is put
 * back before each request, as an application in worker mode has to do for what it changes.
 */
(static function (): void {
    $timezone = date_default_timezone_get();
    $locale = setlocale(LC_CTYPE, '0');
    $umask = umask();

    $restore = static function () use ($timezone, $locale, $umask): void {
        foreach (ini_get_all(null, true) as $name => $setting) {
            if ($setting['local_value'] !== $setting['global_value']) {
                ini_restore($name);
            }
        }
        set_error_handler(null);
        set_exception_handler(null);
        error_reporting((int) ini_get('error_reporting'));
        array_map(spl_autoload_unregister(...), spl_autoload_functions());
        date_default_timezone_set($timezone);
        setlocale(LC_ALL, 'C');
        setlocale(LC_CTYPE, $locale);
        umask($umask);
        ignore_user_abort(false);
        set_time_limit((int) ini_get('max_execution_time'));
        libxml_use_internal_errors(false);
    };

    $handler = static function () use ($restore): void {
        $restore();
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
