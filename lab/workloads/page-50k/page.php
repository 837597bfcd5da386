<?php
/* What all entries answer with. */

declare(strict_types=1);

/** 50 KiB of text, given out line by line. */
function page(callable $write): void
{
    $line = str_repeat('x', 1023)."\n";
    for ($i = 0; $i < 50; ++$i) {
        $write($line);
    }
}
