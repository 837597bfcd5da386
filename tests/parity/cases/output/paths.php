<?php
require_once __DIR__ . '/../show.php';
foreach (['PHP_SAPI', 'PHP_BINARY', 'PHP_CONFIG_FILE_PATH', 'PHP_CONFIG_FILE_SCAN_DIR', 'PHP_BINDIR', 'PHP_MANDIR'] as $name) {
    show($name, constant($name));
}
show('php_sapi_name', php_sapi_name());
show('loaded', php_ini_loaded_file());
show('scanned', array_map('trim', explode(',', php_ini_scanned_files())));
show('cfg', get_cfg_var('cfg_file_path'));
