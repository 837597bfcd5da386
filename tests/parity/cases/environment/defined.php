<?php
foreach (get_defined_constants(true) as $group => $constants) {
    if ($group !== 'user') {
        ksort($constants);
        foreach (array_keys($constants) as $name) {
            echo "$group $name\n";
        }
    }
}
