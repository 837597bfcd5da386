<?php

// The least bcrypt allows: a test logs in often.
return ['driver' => 'bcrypt', 'bcrypt' => ['rounds' => 4]];
