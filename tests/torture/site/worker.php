<?php
/* Boots the program of HAYATE_PROGRAM and answers its requests: /N runs its part N. Under php-fpm once, in worker mode in a loop. */
require __DIR__ . '/tools.php';
T::$dir = getenv('HAYATE_SCRATCH') ?: $_SERVER['HAYATE_SCRATCH'];
$program = getenv('HAYATE_PROGRAM') ?: $_SERVER['HAYATE_PROGRAM'];
require "$program/boot.php";
$handler = static function () use ($program): void {
    T::$request = $_GET['n'];
    (static function (): void {
        require func_get_arg(0);
    })($program . '/request' . (int) $_GET['part'] . '.php');
};
if (!function_exists('hayate_handle_request')) {
    $handler();
    return;
}
while (hayate_handle_request($handler)) {
}
