<?php
/* Recursion without end runs into the memory limit, not into the stack's end. */
ini_set('memory_limit', '16M');
/* From 8.5 on a fatal error logs its backtrace: php-fpm sends it through nginx, and a megabyte now and then costs the answer. */
if (!ini_get('display_errors')) {
    ini_set('fatal_error_backtraces', '0');
}
$recurse = static function (int $depth) use (&$recurse) {
    return $recurse($depth + 1) + 1;
};
echo $recurse(0);
