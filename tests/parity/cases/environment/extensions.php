<?php
$names = array_map('strtolower', get_loaded_extensions());
sort($names);
echo implode("\n", $names), "\n";
echo implode("\n", get_loaded_extensions(true)), "\n";
