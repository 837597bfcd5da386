<?php

declare(strict_types=1);

/** @var CodeIgniter\Router\RouteCollection $routes */
$routes->get('ok', 'Ok::index');
