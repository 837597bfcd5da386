<?php
/*
 * Boots the program of HAYATE_PROGRAM and answers its requests: /N runs its part N. Under php-fpm once, in worker mode in
 * a loop, which the program's place says from where: the script itself, a Fiber, or far down a stack.
 */
require __DIR__ . '/tools.php';
T::$dir = getenv('HAYATE_SCRATCH') ?: $_SERVER['HAYATE_SCRATCH'];
T::$loops = !isset($_GET['n']); // what boots for a request knows it
$program = getenv('HAYATE_PROGRAM') ?: $_SERVER['HAYATE_PROGRAM'];
require "$program/boot.php";
// What keeps a time, asked by each boot.
apcu_fetch('nothing');
realpath(T::$dir);
$handler = static function () use ($program): void {
    T::$request = $_GET['n'];
    T::$began = hrtime(true);
    header('X-Process: ' . getmypid());
    (static function (): void {
        require func_get_arg(0);
    })($program . '/request' . (int) $_GET['part'] . '.php');
};
$place = require "$program/place.php";
if ($place !== 'script') {
    $loop = static function () use ($handler): void {
        if (!T::rewound()) {
            $handler();
            return;
        }
        while (hayate_handle_request($handler)) {
        }
    };
    // Each level takes some 400 bytes of the C stack.
    $down = static function (int $levels) use (&$down, $loop): void {
        $levels > 0 ? array_map($down, [$levels - 1]) : $loop();
    };
    $place === 'fiber' ? (new Fiber($loop))->start() : $down(8000);
    return;
}
if (!T::rewound()) {
    $handler();
    return;
}
while (hayate_handle_request($handler)) {
}
