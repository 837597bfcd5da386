<?php
/* Recursion without end runs into the memory limit, not into the stack's end. */
ini_set('memory_limit', '16M');
$recurse = static function (int $depth) use (&$recurse) {
    return $recurse($depth + 1) + 1;
};
echo $recurse(0);
