<?php

// Pages here have no session; Laravel asks for one when it renders an error.
return ['driver' => 'array', 'lifetime' => 120, 'expire_on_close' => false, 'encrypt' => false, 'cookie' => 'blog', 'path' => '/',
    'domain' => null, 'secure' => null, 'http_only' => true, 'same_site' => 'lax', 'lottery' => [0, 100]];
