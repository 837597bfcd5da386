<?php
require_once __DIR__ . '/../show.php';
show('getcwd', getcwd());
show('__FILE__', __FILE__);
show('relative include', include 'include/_value.php');
show('dot include', include './include/_value.php');
show('include by __DIR__', include __DIR__ . '/include/_value.php');
show('realpath', realpath('include/../include/_value.php'));
show('relative to the includer', include 'include/_nested.php');
show('stream', file_get_contents('include/_data.txt'));
show('chdir', [chdir('include'), getcwd(), file_exists('_value.php')]);
show('again', include '_value.php');
show('include_once', include_once __DIR__ . '/include/_value.php');
show('glob', array_map('basename', glob(__DIR__ . '/include/*')));
show('included', array_intersect(array_map('basename', get_included_files()), ['_value.php', '_nested.php', '_missing.php']) !== []);
