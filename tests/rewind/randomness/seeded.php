<?php
/*
 * A boot that seeds generators itself, and requests that draw from them. Under php-fpm this file is the whole script, so
 * that the boot's part comes first there as well. ?engines asks for those that seed themselves: a clone draws what its
 * original draws.
 */
declare(strict_types=1);

use Random\Engine\Mt19937;
use Random\Engine\PcgOneseq128XslRr64;
use Random\Engine\Xoshiro256StarStar;

mt_srand(42);
$first = [mt_rand(), mt_rand()];
$engines = [
    'mt19937' => new Mt19937(1),
    'mt19937_php' => new Mt19937(1, MT_RAND_PHP),
    'pcg' => new PcgOneseq128XslRr64(2),
    'xoshiro' => new Xoshiro256StarStar(str_repeat('s', 32)),
];
$engines['pcg']->generate();
$engines['clone'] = clone $engines['pcg'];
$engines['stored'] = unserialize(serialize($engines['xoshiro']));
unset($engines['mt19937_php']);
$randomizer = new Random\Randomizer($engines['mt19937']);
if (extension_loaded('gmp')) {
    gmp_random_seed(7);
}
$original = new Xoshiro256StarStar();
$copy = clone $original;
$late = static function (): Mt19937 {
    static $made;
    return $made ??= new Mt19937(99);
};

$handler = static function () use ($first, $engines, $randomizer, $original, $copy, $late): void {
    if (isset($_GET['engines'])) {
        echo bin2hex($original->generate()), ' ', bin2hex($copy->generate());
        return;
    }
    $drawn = ['first' => $first, 'mt_rand' => mt_rand(), 'shuffle' => str_shuffle('abcdefghijklmnop'), 'rand' => rand(1, 1000)];
    foreach ($engines as $name => $engine) {
        $drawn[$name] = bin2hex($engine->generate() . $engine->generate());
    }
    $drawn['randomizer'] = $randomizer->getInt(0, PHP_INT_MAX);
    $drawn['late'] = bin2hex($late()->generate());
    if (extension_loaded('gmp')) {
        $drawn['gmp'] = gmp_strval(gmp_random_bits(100), 16);
    }
    if (isset($_SERVER['HAYATE_WARMUP'])) {
        mt_srand(5);
        mt_rand();
    }
    echo json_encode($drawn);
};

if (!function_exists('hayate_handle_request')) {
    $handler();
    return;
}
while (hayate_handle_request($handler)) {
    /* Rewinding takes place in that call. */
}
