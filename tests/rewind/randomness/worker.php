<?php
/*
 * Draws from every source of randomness that PHP has, a line for each: its name and what came; with ?dear from those that
 * take a millisecond, too. The boot draws as well, so that generators are seeded, and their states in the snapshot, if
 * nothing takes them out again.
 */
declare(strict_types=1);

$database = new PDO('sqlite::memory:');
$boot_session = session_create_id();
mt_rand();
lcg_value();
random_int(0, PHP_INT_MAX);
uniqid('', true);
openssl_random_pseudo_bytes(16);
str_shuffle('abcdefgh');
$database->query('SELECT random()')->fetchColumn();
$randomizer = new Random\Randomizer();
$randomizer->getInt(0, 1 << 30);

$handler = static function () use ($database, $randomizer): void {
    $long = range(1, 30);
    shuffle($long);
    $sources = [
        'mt_rand' => implode(',', [mt_rand(), mt_rand(), mt_rand(), mt_rand()]),
        'lcg_value' => sprintf('%.15f,%.15f', lcg_value(), lcg_value()),
        'uniqid' => uniqid('', true),
        'random_bytes' => bin2hex(random_bytes(16)),
        'random_int' => random_int(0, PHP_INT_MAX) . ',' . random_int(0, PHP_INT_MAX),
        'openssl_random' => bin2hex(openssl_random_pseudo_bytes(16)),
        'sodium' => sodium_bin2hex(sodium_crypto_secretbox_keygen()),
        'sqlite_at_boot' => implode(',', $database->query('SELECT random(), random()')->fetch(PDO::FETCH_NUM)),
        'sqlite' => implode(',', (new PDO('sqlite::memory:'))->query('SELECT random(), random()')->fetch(PDO::FETCH_NUM)),
        'session' => session_create_id(),
        'randomizer_at_boot' => $randomizer->getBytes(16) === '' ? '' : bin2hex($randomizer->getBytes(16)),
        'randomizer' => bin2hex((new Random\Randomizer())->getBytes(16)),
        'engine' => (new Random\Randomizer(new Random\Engine\Xoshiro256StarStar()))->nextInt() . ','
            . (new Random\Randomizer(new Random\Engine\PcgOneseq128XslRr64()))->nextInt(),
        'shuffle' => implode(',', $long),
        'boundary' => bin2hex(openssl_encrypt('x', 'aes-128-cbc', 'k', 0, random_bytes(16))),
    ];
    if (isset($_GET['dear'])) {
        $key = openssl_pkey_new(['private_key_type' => OPENSSL_KEYTYPE_EC, 'curve_name' => 'prime256v1']);
        $sources['openssl_key'] = md5(openssl_pkey_get_details($key)['ec']['d']);
        $sources['password'] = substr(password_hash('x', PASSWORD_BCRYPT, ['cost' => 4]), 7, 22);
    }
    foreach ($sources as $source => $drawn) {
        echo "$source $drawn\n";
    }
    echo 'pid ', getmypid(), "\n";
};

while (hayate_handle_request($handler)) {
    /* Rewinding takes place in that call. */
}
