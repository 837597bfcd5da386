<?php
/* Every internal function and class there is. */
$functions = get_defined_functions()['internal'];
sort($functions);
echo implode("\n", $functions), "\n";
