<?php
declare(ticks=1);
$count = 0;
register_tick_function(static function () use (&$count) {
    $count++;
});
$a = 1;
$b = 2;
echo $count > 0 ? "ticked\n" : "not ticked\n";
