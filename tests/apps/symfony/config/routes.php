<?php

declare(strict_types=1);

use App\Controller\AccountController;
use App\Controller\AnswerController;
use App\Controller\BoardController;
use App\Controller\FileController;
use App\Controller\HintController;
use Symfony\Component\Routing\Loader\Configurator\RoutingConfigurator;

return static function (RoutingConfigurator $routes): void {
    $routes->add('json', '/json')->controller([AnswerController::class, 'json'])->methods(['GET'])->stateless();
    $routes->add('echo', '/echo')->controller([AnswerController::class, 'echo'])->methods(['POST', 'PUT']);
    $routes->add('stream', '/stream/{name}')->controller([AnswerController::class, 'stream'])->requirements(['name' => '\w+']);
    $routes->add('broken', '/broken')->controller([AnswerController::class, 'broken']);
    $routes->add('exit', '/exit')->controller([AnswerController::class, 'exit']);
    $routes->add('leave', '/leave')->controller([AnswerController::class, 'leave']);
    $routes->add('later', '/later/{name}')->controller([AnswerController::class, 'later'])->requirements(['name' => '\w+']);
    $routes->add('trail', '/trail/{step}')->controller([AnswerController::class, 'trail']);

    $routes->add('hints', '/hints/{name}')->controller([HintController::class, 'page'])->requirements(['name' => '\w+']);

    $routes->add('home', '/')->controller([BoardController::class, 'home']);
    $routes->add('winds', '/winds')->controller([BoardController::class, 'winds'])->methods(['GET']);
    $routes->add('write', '/write')->controller([BoardController::class, 'write'])->methods(['GET', 'POST']);
    $routes->add('clear', '/clear')->controller([BoardController::class, 'clear'])->methods(['POST']);

    $routes->add('upload', '/upload')->controller([FileController::class, 'upload'])->methods(['GET', 'POST']);
    $routes->add('file', '/files/{name}')->controller([FileController::class, 'show'])->requirements(['name' => '[\w.-]+']);

    $routes->add('login', '/login')->controller([AccountController::class, 'login'])->methods(['GET', 'POST']);
    $routes->add('logout', '/logout')->methods(['GET']);
    $routes->add('account', '/account')->controller([AccountController::class, 'account']);
    $routes->add('admin', '/admin')->controller([AccountController::class, 'admin']);
};
