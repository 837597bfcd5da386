<?php
require_once __DIR__ . '/../show.php';
show('outside', @file_get_contents('/etc/passwd'));
show('error', error_get_last()['message'] ?? null);
show('inside', strlen(file_get_contents(__FILE__)) > 0);
show('up', @file_get_contents(__DIR__ . '/../input/get.php'));
show('include', @include '/etc/hostname');
show('widen', ini_set('open_basedir', '/'));
show('tighten', ini_set('open_basedir', __DIR__ . ':' . __DIR__ . '/../show.php'));
foreach (['exec', 'shell_exec', 'system', 'phpinfo', 'passthru'] as $function) {
    show($function, function_exists($function));
}
try {
    exec('true');
} catch (Error $error) {
    show('call', $error->getMessage());
}
try {
    $object = @new SplFileObject(__FILE__);
    show('class', get_class($object));
} catch (Throwable $error) {
    show('class', $error->getMessage());
}
show('url', @file_get_contents('http://127.0.0.1:1/'));
show('url error', error_get_last()['message'] ?? null);
show('upload', ini_get('file_uploads'));
show('user ini', ini_get('user_ini.filename'));
