<?php
ob_start('ob_gzhandler');
header('Content-Type: text/plain');
echo str_repeat("compress me\n", 500);
