<?php
/*
 * php unnamed.php LIBRARY COPY: a copy of a shared library without a name of its own (SONAME), to link with.
 *
 * The linker writes into a program what a library calls itself, and where it says nothing, how its file is called. All of
 * Debian's PHPs call theirs libphp.so, so that where there are two the loader would take either for each of our hosts.
 * Only 64-bit little-endian ELF, as the System V ABI, chapters 4 and 5, has it.
 */
const PROGRAM_HEADERS_AT = 32, PROGRAM_HEADER_SIZE = 54, PROGRAM_HEADER_COUNT = 56;
const PT_DYNAMIC = 2, DT_NULL = 0, DT_SONAME = 14;
// Of a library a linker does not look at it.
const DT_DEBUG = 21;

[, $library, $copy] = $argv + [null, null, null];
$elf = null === $copy ? false : @file_get_contents($library);
if (false === $elf || !str_starts_with($elf, "\x7fELF\x02\x01")) {
    fwrite(STDERR, "unnamed.php: expected a 64-bit library and the path of its copy, found '$library'\n");
    exit(1);
}
$number = static fn (string $format, int $at): int => unpack($format, $elf, $at)[1];
$named = null;
for ($n = 0; $n < $number('v', PROGRAM_HEADER_COUNT); ++$n) {
    $header = $number('P', PROGRAM_HEADERS_AT) + $n * $number('v', PROGRAM_HEADER_SIZE);
    if (PT_DYNAMIC !== $number('V', $header)) {
        continue;
    }
    for ($at = $number('P', $header + 8), $end = $at + $number('P', $header + 32); $at < $end && DT_NULL !== $tag = $number('P', $at); $at += 16) {
        $named = DT_SONAME === $tag ? $at : $named;
    }
}
// One that has none is as it should be.
if (null !== $named) {
    $elf = substr_replace($elf, pack('P', DT_DEBUG), $named, 8);
}
exit(strlen($elf) === file_put_contents($copy, $elf) ? 0 : 1);
