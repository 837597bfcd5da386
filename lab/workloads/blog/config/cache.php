<?php

return [
    'default' => 'file',
    'stores' => ['file' => ['driver' => 'file', 'path' => storage_path('framework/cache/data')], 'apc' => ['driver' => 'apc']],
    'prefix' => 'blog',
];
