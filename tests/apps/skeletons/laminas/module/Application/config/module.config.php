<?php

declare(strict_types=1);

use Application\Controller\IndexController;
use Laminas\Router\Http\Segment;

$routes = ['home' => '/', 'person' => '/people/:name', 'form' => '/form', 'visits' => '/visits', 'cookie' => '/cookie/:taste', 'fails' => '/fails', 'leave' => '/exit'];
array_walk($routes, static function (&$route, string $action): void {
    $route = ['type' => Segment::class, 'options' => ['route' => $route, 'defaults' => ['controller' => IndexController::class, 'action' => $action]]];
});

return [
    'shop' => getenv('SHOP_NAME'),
    'router' => ['routes' => $routes],
    'controllers' => ['factories' => [IndexController::class => Application\Controller\IndexControllerFactory::class]],
    'view_manager' => [
        'not_found_template' => 'error/404',
        'exception_template' => 'error/index',
        'display_exceptions' => false,
        'template_map' => ['layout/layout' => __DIR__.'/../view/shop.phtml', 'error/404' => __DIR__.'/../view/error.phtml', 'error/index' => __DIR__.'/../view/error.phtml'],
    ],
];
