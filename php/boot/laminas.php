<?php

/**
 * Runs a Laminas MVC project's own public/index.php up to Application::run(), once, and then that for each request; the
 * worker script for projects of Laminas MVC that `hayate serve` recognises (see front_controller.php).
 *
 * The application is made with a request and bootstraps its modules with it: an empty one here. Each request gets one of
 * its own, in the application, its event and the service manager, before anything is routed.
 */

declare(strict_types=1);

namespace Hayate\Boot;

use Laminas\Mvc\Application;

function prepare(Application $app): \Closure
{
    $renew = (function (): void {
        $services = $this->serviceManager;
        $allowed = $services->getAllowOverride();
        $services->setAllowOverride(true);
        $services->setService('Request', $services->build('Request'));
        $services->setAllowOverride($allowed);
        $this->request = $services->get('Request');
        $this->event->setRequest($this->request);
    })->bindTo($app, Application::class);

    return static function () use ($app, $renew): void {
        $renew();
        $app->run();
    };
}

require __DIR__.'/front_controller.php';
