<?php
$keys = array_keys(getenv());
sort($keys);
echo implode("\n", $keys), "\n";
