<?php

return [
    'default' => env('BLOG_DATABASE'),
    'connections' => [
        'mysql' => [
            'driver' => 'mysql',
            'unix_socket' => env('BLOG_SOCKET'),
            'database' => 'lab',
            'username' => 'lab',
            'password' => 'lab',
            'charset' => 'utf8mb4',
            'collation' => 'utf8mb4_general_ci',
            'prefix' => '',
            'strict' => true,
        ],
        'sqlite' => ['driver' => 'sqlite', 'database' => env('BLOG_FILE'), 'prefix' => '', 'foreign_key_constraints' => true],
    ],
    'migrations' => 'migrations',
];
