<?php
/*
 * Writes the files that are included: php generate.php FOLDER. An array of 1,000 and of 10,000 entries, a line each, and a class of
 * 10,000 methods. Each says at its end what the last entry or method is, so that the answer shows that all of it was there.
 */

declare(strict_types=1);

[, $folder] = $argv;
foreach ([1_000, 10_000] as $count) {
    $lines = '';
    for ($i = 1; $i <= $count; ++$i) {
        $lines .= "    'entry $i' => 'value $i of an array that a file returns',\n";
    }
    file_put_contents("$folder/array-$count.php", "<?php\n\nreturn [\n$lines];\n");
}
$methods = '';
for ($i = 1; $i <= 10_000; ++$i) {
    $methods .= "    public function method$i(): string\n    {\n        return 'method $i';\n    }\n";
}
file_put_contents("$folder/methods-10000.php", "<?php\n\nfinal class Methods\n{\n$methods}\n");
