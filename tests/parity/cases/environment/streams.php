<?php
require_once __DIR__ . '/../show.php';
show('memory', (static function () { $s = fopen('php://memory', 'w+'); fwrite($s, 'abc'); rewind($s); return fread($s, 9); })());
show('temp', (static function () { $s = fopen('php://temp/maxmemory:2', 'w+'); fwrite($s, 'abcdef'); rewind($s); return stream_get_contents($s); })());
show('data', file_get_contents('data://text/plain;base64,aGVsbG8='));
show('filter', file_get_contents('php://filter/read=string.toupper|string.rot13/resource=data:,abc'));
show('glob', count(scandir('glob://' . __DIR__ . '/include/*')));
show('wrappers', stream_get_wrappers());
show('transports', stream_get_transports());
show('filters', stream_get_filters());
show('tempnam', (static function () { $f = tempnam('', 'par'); $in = str_starts_with($f, sys_get_temp_dir()); unlink($f); return $in; })());
show('tmpfile', (static function () { $f = tmpfile(); return fwrite($f, 'x'); })());
show('sys_get_temp_dir', sys_get_temp_dir() === ini_get('sys_temp_dir'));
show('zip', (static function () { $f = sys_get_temp_dir() . '/parity.zip'; $z = new ZipArchive(); $z->open($f, ZipArchive::CREATE); $z->addFromString('a', 'b'); $z->close(); $r = file_get_contents("zip://$f#a"); unlink($f); return $r; })());
