<?php
require_once __DIR__ . '/../show.php';
/* Seeded sequences are the same everywhere; the others differ from request to request. */
mt_srand(42);
show('mt_srand', [mt_rand(), mt_rand(1, 100), rand(1, 6)]);
srand(7);
show('shuffle', (static function () { $list = range(1, 5); shuffle($list); return $list; })());
mt_srand(1, MT_RAND_PHP);
show('old', mt_rand(1, 10));
$file = sys_get_temp_dir() . '/parity-random';
if (isset($_GET['compare'])) {
    $before = unserialize(file_get_contents($file));
    unlink($file);
} else {
    $before = [];
}
$now = ['bytes' => random_bytes(8), 'int' => random_int(0, PHP_INT_MAX), 'uniqid' => uniqid('', true), 'lcg' => lcg_value(),
    'openssl' => openssl_random_pseudo_bytes(8), 'password' => password_hash('x', PASSWORD_BCRYPT, ['cost' => 4]), 'id' => session_create_id()];
mt_srand();
$now['mt'] = mt_rand();
foreach ($now as $name => $value) {
    show("$name differs", ($before[$name] ?? null) !== $value);
}
file_put_contents($file, serialize($now));
if ($before) {
    unlink($file);
}
