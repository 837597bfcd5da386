<?php

return [
    'default' => 'stack',
    'channels' => [
        'stack' => ['driver' => 'stack', 'channels' => ['single', 'server']],
        'single' => ['driver' => 'single', 'path' => storage_path('logs/laravel.log')],
        // PHP's error_log(), which is the server's log.
        'server' => ['driver' => 'errorlog'],
    ],
];
