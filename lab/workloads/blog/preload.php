<?php
/* For opcache.preload: compiles what a request needs, as bin/build found it, and the stored list. */

declare(strict_types=1);

foreach ([...require __DIR__.'/storage/used.php', __DIR__.'/app/Stored.php', __DIR__.'/storage/list.php'] as $file) {
    opcache_compile_file($file);
}
