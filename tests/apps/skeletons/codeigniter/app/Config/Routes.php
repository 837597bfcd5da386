<?php

declare(strict_types=1);

/** @var CodeIgniter\Router\RouteCollection $routes */
$routes->get('/', 'Shop::home');
$routes->get('people/(:segment)', 'Shop::person/$1');
$routes->get('form', 'Shop::form');
$routes->post('form', 'Shop::sent', ['filter' => 'csrf']);
$routes->get('visits', 'Shop::visits');
$routes->get('cookie/(:segment)', 'Shop::cookie/$1');
$routes->get('fails', 'Shop::fails');
$routes->get('exit', 'Shop::leave');
