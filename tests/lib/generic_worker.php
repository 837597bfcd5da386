<?php
/*
 * A worker script for any document root: each request runs the .php file its URL names, as php-fpm would run it.
 *
 * It boots nothing. It exists so that scripts written for classic mode can be run in worker mode and compared.
 * What differs from classic mode by construction: the script runs inside a function (its variables are not
 * globals), named functions and classes stay declared, and the process lives on after the request.
 */
(static function (): void {
    $handle = function_exists('hayate_handle_request') ? 'hayate_handle_request' : 'frankenphp_handle_request';

    /* The script's file for the request, with $_SERVER set as nginx and php-fpm set it; null when there is none. */
    $resolve = static function (): ?string {
        $root = $_SERVER['DOCUMENT_ROOT'];
        $path = rawurldecode(parse_url('http://host' . $_SERVER['REQUEST_URI'], PHP_URL_PATH) ?: '/');
        if (str_ends_with($path, '/')) {
            $path .= 'index.php';
        }
        $script = preg_match('~^(.+?\.php)(/.*)$~s', $path, $parts) ? $parts[1] : $path;
        $file = $root . $script;
        if (str_contains($path, "\0") || str_contains($path, '/../') || !str_ends_with($script, '.php') || !is_file($file)) {
            return null;
        }
        $_SERVER['SCRIPT_FILENAME'] = $file;
        $_SERVER['SCRIPT_NAME'] = $script;
        $_SERVER['PATH_INFO'] = $parts[2] ?? '';
        $_SERVER['DOCUMENT_URI'] = $script;
        $_SERVER['PHP_SELF'] = $path;
        return $file;
    };

    $handler = static function () use ($resolve): void {
        $file = $resolve();
        if ($file === null) {
            http_response_code(404);
            echo "File not found.\n";
            return;
        }
        chdir(dirname($file));
        (static function (): void {
            include func_get_arg(0);
        })($file);
    };

    while ($handle($handler)) {
        /* One request after the other until the server wants this worker to end. */
    }
})();
