<?php
require_once __DIR__ . '/../show.php';
show('inode', getmyinode() === fileinode(__FILE__));
show('lastmod', getlastmod() === filemtime(__FILE__));
show('owner', [getmyuid() === fileowner(__FILE__), getmygid() === filegroup(__FILE__)]);
show('included', array_map('basename', get_included_files()));
