<?php
ini_set('zlib.output_compression', '1');
header('Content-Type: text/plain');
echo str_repeat("compress me\n", 500);
