<?php
echo 'script saw ', $shared ?? 'nothing', "\n";
$own = 'a variable of the script';
if (isset($_GET['exit'])) {
    exit("exit\n");
}
if (isset($_GET['throw'])) {
    throw new Exception('thrown');
}
echo implode(',', array_map('basename', get_included_files())), "\n";
