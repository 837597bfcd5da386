<?php
/* Debian installs PHP libraries below /usr/share/php, one class to a file that is named after it. */
spl_autoload_register(static function (string $class): void {
    $file = '/usr/share/php/' . strtr($class, '\\', '/') . '.php';
    if (is_file($file)) {
        require_once $file;
    }
});
require_once __DIR__ . '/Libraries.php';
// Its name is no path; Symfony 5.4 has none.
if (is_file('/usr/share/php/Symfony/Component/Cache/Traits/ValueWrapper.php')) {
    require_once '/usr/share/php/Symfony/Component/Cache/Traits/ValueWrapper.php';
}
foreach (['GuzzleHttp/functions_include.php', 'GuzzleHttp/Promise/functions_include.php', 'GuzzleHttp/Psr7/functions_include.php', 'Symfony/Contracts/Deprecation/function.php', 'Symfony/Polyfill/Php85/bootstrap.php', 'Symfony/Polyfill/Php86/bootstrap.php', 'Symfony/Polyfill/DeepClone/bootstrap.php'] as $file) {
    if (is_file("/usr/share/php/$file")) {
        require_once "/usr/share/php/$file";
    }
}
