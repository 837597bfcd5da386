<?php

declare(strict_types=1);

return [
    'debug' => false,
    'Security' => ['salt' => 'a salt of the tests, of which nothing but its length counts'],
    'Datasources' => ['default' => ['url' => 'sqlite:///:memory:'], 'test' => ['url' => 'sqlite:///:memory:']],
    'Session' => ['defaults' => 'php'],
    'Shop' => ['name' => env('SHOP_NAME')],
];
