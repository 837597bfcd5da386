<?php

/**
 * Runs a Yii project's own web/index.php up to Application::run(), once, and then that for each request; the worker script
 * for projects of Yii 2 that `hayate serve` recognises (see front_controller.php).
 *
 * The application asks its request for its own address as it is made, and keeps it. So each request gets a request of
 * its own, as configured, and the aliases that come of it. Where more has been asked or set as it was made (a language,
 * who the visitor is), it does not boot without a request.
 */

declare(strict_types=1);

namespace Hayate\Boot;

use yii\web\Application;
use yii\web\Request;
use yii\web\Session;
use yii\web\User;

const DOCUMENT_ROOT = 'web';

/** @return array<string, mixed> what a component of that class has kept */
function kept(object $component, string $class): array
{
    return (fn (): array => get_object_vars($this))->bindTo($component, $class)();
}

/** What of the application's has been asked about a visitor, and would answer all of them the same; null: nothing. */
function asked(Application $app): ?string
{
    // A new one, as each request gets it: the application has only asked it for the script and its address.
    $new = \Yii::createObject($app->getComponents()['request']);
    $new->getScriptFile();
    $new->getBaseUrl();
    $new = kept($new, Request::class);
    foreach (kept($app->getRequest(), Request::class) as $name => $value) {
        if (!\array_key_exists($name, $new) || $new[$name] !== $value) {
            return 'request: '.ltrim($name, '_');
        }
    }
    $session = $app->has('session', true) ? $app->get('session') : null;
    if ($session instanceof Session && null !== kept($session, Session::class)['_hasSessionId']) {
        return 'session';
    }
    $user = $app->has('user', true) ? $app->get('user') : null;

    return $user instanceof User && false !== kept($user, User::class)['_identity'] ? 'user' : null;
}

function prepare(Application $app): \Closure
{
    if (null !== $asked = asked($app)) {
        error_log("what `bootstrap` names looks at the request ({$asked}) before there is one, and would do so once for all visitors");
        exit;
    }
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
