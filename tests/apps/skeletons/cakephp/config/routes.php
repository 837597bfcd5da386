<?php

declare(strict_types=1);

use Cake\Routing\RouteBuilder;

return static function (RouteBuilder $routes): void {
    $routes->connect('/', ['controller' => 'Shop', 'action' => 'home']);
    $routes->connect('/people/{name}', ['controller' => 'Shop', 'action' => 'person'], ['pass' => ['name']]);
    $routes->get('/form', ['controller' => 'Shop', 'action' => 'form']);
    $routes->post('/form', ['controller' => 'Shop', 'action' => 'sent']);
    $routes->connect('/cookie/{taste}', ['controller' => 'Shop', 'action' => 'cookie'], ['pass' => ['taste']]);
    foreach (['visits', 'fails', 'leave'] as $action) {
        $routes->connect($action === 'leave' ? '/exit' : "/{$action}", ['controller' => 'Shop', 'action' => $action]);
    }
};
