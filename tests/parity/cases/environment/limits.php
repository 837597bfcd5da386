<?php
require_once __DIR__ . '/../show.php';
show('peak', memory_get_peak_usage() < 4_000_000);
show('usage', memory_get_usage(true));
show('reset', memory_reset_peak_usage());
show('rusage', count(getrusage()));
show('cycles', gc_status()['runs']);
show('recursion', (static function () { $f = static function ($n) use (&$f) { return $n === 0 ? 0 : 1 + $f($n - 1); }; return $f(20000); })());
show('preg', preg_match('/^(?:a|b)*$/', str_repeat('ab', 50000)));
show('preg error', preg_last_error_msg());
