<?php
echo "prepended by ", basename($_SERVER["SCRIPT_FILENAME"]), "\n";
$shared = "a variable of the prepended file";
register_shutdown_function(static fn () => print "shutdown of the prepended file\n");
