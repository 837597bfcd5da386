<?php
header('Content-Type: text/plain; charset=utf-16');
echo mb_convert_encoding('日本語 é 😀', 'UTF-16'), "\0\1\2\xff\xfe";
