<?php
require_once __DIR__ . '/../../../show.php';
foreach (['memory_limit', 'precision', 'upload_max_filesize', 'file_uploads', 'opcache.enable'] as $key) {
    show($key, ini_get($key));
}
show('own', get_cfg_var('parity.own'));
