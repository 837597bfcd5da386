<?php
/* Every setting of every extension, with its access level. */
foreach (ini_get_all() as $key => $setting) {
    echo $key, ' = ', var_export($setting['local_value'], true), $setting['local_value'] === $setting['global_value'] ? '' : ' (local)',
        ' ', $setting['access'], "\n";
}
