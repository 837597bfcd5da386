<?php
require_once __DIR__ . '/../show.php';
show('internal', mb_internal_encoding());
show('http_input', mb_http_input());
show('http_output', mb_http_output());
show('parse_str', (static function () { mb_parse_str('a=1&b[]=2', $out); return $out; })());
