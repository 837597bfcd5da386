<?php

// PHP's error_log(), which is the server's log.
return ['default' => 'errorlog', 'channels' => ['errorlog' => ['driver' => 'errorlog']]];
