<?php
file_put_contents('php://stderr', 'a line of parity on stderr' . "\n");
error_log('a line of parity through error_log');
error_log("two lines of parity\nin one message");
echo 'written';
