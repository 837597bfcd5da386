<?php
/* W1: the smallest useful answer, so that what is measured is the server. */
header('Content-Type: application/json');
echo '{"status":"OK"}';
