<?php
require_once __DIR__ . '/../show.php';
foreach (['STDIN', 'STDOUT', 'STDERR', 'PHP_OS', 'PHP_OS_FAMILY', 'PHP_EOL', 'PHP_VERSION', 'PHP_MAJOR_VERSION', 'PHP_ZTS', 'PHP_DEBUG',
    'PHP_MAXPATHLEN', 'DEFAULT_INCLUDE_PATH', 'PHP_EXTENSION_DIR', 'PHP_PREFIX', 'PHP_LIBDIR', 'PHP_DATADIR', 'PHP_SYSCONFDIR',
    'PHP_SHLIB_SUFFIX', 'PHP_INT_MAX', 'PHP_FLOAT_EPSILON', 'PHP_FD_SETSIZE', 'PHP_OUTPUT_HANDLER_START', 'MB_CASE_UPPER'] as $name) {
    show($name, defined($name) ? constant($name) : 'undefined');
}
show('stdin', file_get_contents('php://stdin'));
