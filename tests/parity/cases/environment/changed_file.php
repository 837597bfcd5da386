<?php
/* A script that is changed is served anew: opcache.revalidate_freq is 2 seconds by default, 0 by opcache_invalidate(). */
$file = sys_get_temp_dir() . '/parity-changed.php';
foreach (['one', 'two'] as $version) {
    file_put_contents($file, "<?php return '$version';");
    opcache_invalidate($file, true);
    echo include $file, "\n";
}
unlink($file);
