<?php
/* Headers that are the server's business, set by the script. */
header($_GET['set']);
echo 'body';
