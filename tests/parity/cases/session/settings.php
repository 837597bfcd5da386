<?php
foreach (ini_get_all('session', false) as $key => $value) {
    if ($key !== 'session.save_path') {
        echo "$key = ", var_export($value, true), "\n";
    }
}
