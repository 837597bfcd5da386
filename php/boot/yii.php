<?php

/**
 * Runs a Yii project's own web/index.php up to Application::run(), once, and then that for each request; the worker script
 * for projects of Yii 2 that `hayate serve` recognises (see front_controller.php).
 *
 * The application asks its request for its own address as it is made, and keeps it. So each request gets a request of
 * its own, as configured, and the aliases that come of it.
 */

declare(strict_types=1);

namespace Hayate\Boot;

use yii\web\Application;

const DOCUMENT_ROOT = 'web';

function prepare(Application $app): \Closure
{
    if (YII_DEBUG) {
        error_log('Yii is in debug mode: changes of the code are seen after `hayate reload` only; --mode classic shows them at once');
    }

    return static function () use ($app): void {
        $app->set('request', $app->getComponents()['request']);
        \Yii::setAlias('@webroot', \dirname($app->getRequest()->getScriptFile()));
        \Yii::setAlias('@web', $app->getRequest()->getBaseUrl());
        $app->run();
    };
}

// The application asks for it as it is made.
$_SERVER['SCRIPT_NAME'] = '/index.php';

require __DIR__.'/front_controller.php';
