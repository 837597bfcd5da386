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
$engines = [
    'mt19937' => new Random\Engine\Mt19937(),
    'pcg' => new Random\Engine\PcgOneseq128XslRr64(),
    'xoshiro' => new Random\Engine\Xoshiro256StarStar(null),
];
$engines['clone'] = clone $engines['xoshiro'];
$engines['clone']->jump();
$shuffler = new Random\Randomizer($engines['pcg']);
foreach ($engines as $engine) {
    $engine->generate();
}
// With this, workers do not come from one boot: each has its own.
$private = getenv('PRIVATE_BOOT') ? stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0) : null;

$libc = FFI::cdef('int rand(void); long random(void); long lrand48(void); double drand48(void); void srand(unsigned seed);');
$libc->srand(1);
$libc->rand();
$libc->lrand48();

/** Of libraries with generators of their own, in Debian's names. */
$bytes = static function (string $library, string $declaration, callable $draw): ?callable {
    try {
        $functions = FFI::cdef($declaration, $library);
    } catch (FFI\Exception) {
        return null;
    }
    return static function () use ($functions, $draw): string {
        $buffer = FFI::new('unsigned char[16]');
        $draw($functions, $buffer);
        return bin2hex(FFI::string($buffer, 16));
    };
};
$libraries = array_filter([
    'gnutls' => $bytes('libgnutls.so.30', 'int gnutls_rnd(int level, void *data, size_t len);', static fn ($of, $to) => $of->gnutls_rnd(0, $to, 16)),
    'libgcrypt' => $bytes('libgcrypt.so.20', 'const char *gcry_check_version(const char *); void gcry_create_nonce(void *, size_t);', static function ($of, $to): void {
        $of->gcry_check_version(null);
        $of->gcry_create_nonce($to, 16);
    }),
]);
foreach ($libraries as $draw) {
    $draw();
}

$sheet = new DOMDocument();
$sheet->loadXML('<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform" xmlns:math="http://exslt.org/math">'
    . '<xsl:output method="text"/><xsl:template match="/"><xsl:value-of select="math:random()"/>,<xsl:value-of select="math:random()"/></xsl:template></xsl:stylesheet>');
$transform = new XSLTProcessor();
$transform->importStylesheet($sheet);
$document = new DOMDocument();
$document->loadXML('<x/>');
$transform->transformToXml($document);

$extensions = static function (): array {
    return array_filter([
        'gmp' => extension_loaded('gmp') ? gmp_strval(gmp_random_bits(128), 16) . ',' . gmp_strval(gmp_random_range(0, gmp_pow(2, 100))) : '',
        'uuid' => extension_loaded('uuid') ? uuid_create(UUID_TYPE_TIME) . "\nuuid " . uuid_create(UUID_TYPE_TIME) : '',
        'object_id' => extension_loaded('mongodb') ? (string) new MongoDB\BSON\ObjectId() : '',
    ]);
};
if (extension_loaded('mongodb')) {
    $manager = new MongoDB\Driver\Manager('mongodb://127.0.0.1:1/');
}
$extensions();

$handler = static function () use ($database, $randomizer, $engines, $shuffler, $libc, $libraries, $transform, $document, $extensions): void {
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
    foreach ($engines as $name => $engine) {
        $sources["engine_$name"] = bin2hex($engine->generate() . $engine->generate());
    }
    $sources['randomizer_with_engine'] = $shuffler->nextInt() . ',' . $shuffler->getInt(0, PHP_INT_MAX);
    $sources['libc_rand'] = implode(',', [$libc->rand(), $libc->rand(), $libc->random()]);
    $sources['libc_rand48'] = implode(',', [$libc->lrand48(), $libc->drand48()]);
    $sources['xslt'] = trim((string) $transform->transformToXml($document));
    foreach ($libraries as $name => $draw) {
        $sources[$name] = $draw();
    }
    $sources += $extensions();
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
