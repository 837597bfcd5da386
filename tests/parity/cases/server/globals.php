<?php
$keys = array_keys($GLOBALS);
sort($keys);
echo implode("\n", $keys), "\n";
