<?php
ini_set('session.use_trans_sid', '1');
ini_set('session.use_only_cookies', '0');
session_id('transparentparity');
session_start();
echo '<a href="/other.php">a</a> <a href="http://other.test/">b</a> <form action="/f"></form> ', SID, "\n";
session_destroy();
