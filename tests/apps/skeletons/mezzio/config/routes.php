<?php

declare(strict_types=1);

use App\Shop;
use Mezzio\Application;

return static function (Application $app): void {
    $shop = ['home' => '/', 'person' => '/people/{name}', 'visits' => '/visits', 'cookie' => '/cookie/{taste}', 'fails' => '/fails', 'leave' => '/exit'];
    foreach ($shop as $name => $path) {
        $app->get($path, Shop::class, $name);
    }
    $app->route('/form', Shop::class, ['GET', 'POST'], 'form');
};
