<?php
require_once __DIR__ . '/../show.php';
show('getmyuid', getmyuid());
show('getmygid', getmygid());
show('get_current_user', get_current_user());
show('posix', [posix_geteuid(), posix_getegid(), posix_getpwuid(posix_geteuid())['name']]);
show('groups', posix_getgroups());
show('pid', getmypid() > 1 && getmypid() === posix_getpid());
show('terminal', posix_isatty(0));
show('hostname', gethostname() === php_uname('n'));
show('sapi', [php_uname('s'), PHP_OS_FAMILY]);
show('can write', is_writable(sys_get_temp_dir()));
show('no new privileges', trim(preg_replace('/.*NoNewPrivs:\s*(\d).*/s', '$1', file_get_contents('/proc/self/status'))));
