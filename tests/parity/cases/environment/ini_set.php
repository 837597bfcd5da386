<?php
require_once __DIR__ . '/../show.php';
show('was', ini_set('precision', '3'));
show('now', [ini_get('precision'), 1 / 3]);
show('restored', [ini_restore('precision'), ini_get('precision')]);
show('system', @ini_set('file_uploads', '0'));
show('perdir', @ini_set('post_max_size', '1'));
show('alter', ini_alter('memory_limit', '200M'));
show('bool', ini_set('display_errors', 'yes'));
show('quantity', ini_parse_quantity('1M'));
show('time limit', [set_time_limit(5), ini_get('max_execution_time')]);
show('include_path', [set_include_path('/x'), get_include_path()]);
show('cfg', [get_cfg_var('memory_limit'), get_cfg_var('no.such.setting')]);
