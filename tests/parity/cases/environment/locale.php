<?php
require_once __DIR__ . '/../show.php';

show('ctype', setlocale(LC_CTYPE, '0'));
show('set', setlocale(LC_ALL, 'C.UTF-8'));
show('conv', localeconv()['decimal_point']);
show('upper', strtoupper('é'));
show('printf', sprintf('%.2f', 1.5));
show('basename', basename('/a/é.txt'));
show('escapeshellarg', escapeshellarg('é'));
