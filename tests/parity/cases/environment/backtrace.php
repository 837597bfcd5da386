<?php
require_once __DIR__ . '/../show.php';
show('frames', count(debug_backtrace()));
show('included', array_map('basename', get_included_files()));
show('top level', array_diff(array_keys(get_defined_vars()), ['_GET', '_POST', '_COOKIE', '_FILES', '_SERVER', '_ENV', '_REQUEST', '_SESSION', 'argv', 'argc']));
(static fn () => debug_print_backtrace())();
echo basename((new Exception())->getFile()), "\n", (new Exception())->getTraceAsString(), "\n";
