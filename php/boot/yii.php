<?php

/**
 * Runs a Yii project's own web/index.php up to Application::run(), once, and then that for each request; the worker script
 * for projects of Yii 2 that `hayate serve` recognises (see front_controller.php).
 *
 * The application asks its request for its own address as it is made, and keeps it. So each request gets a request of
 * its own, as configured, and the aliases that come of it. Where more has been asked or set as it was made (a language,
 * who the visitor is, a header of the answer), it is served in classic mode.
 */

declare(strict_types=1);

namespace Hayate\Boot;

use yii\base\BaseObject;
use yii\base\Component;
use yii\base\Security;
use yii\web\Application;
use yii\web\Request;
use yii\web\Response;
use yii\web\Session;
use yii\web\User;

const DOCUMENT_ROOT = 'web';

/** Methods of a request that the application calls as it is made, or that hold what is configured. What sets shows in what is kept. */
const HARMLESS = ['__construct', 'init', 'behaviors', 'getScriptFile', 'getScriptUrl', 'getBaseUrl'];

/** What a response sends beside its format. */
const SENT = ['_headers', '_cookies', 'data', 'content', 'stream', 'isSent'];

/** @return array<string, mixed> what a component has kept, by class and name: also what is private to a class that others extend */
function kept(object $component): array
{
    $kept = [];
    for ($class = new \ReflectionClass($component); $class; $class = $class->getParentClass()) {
        $own = (fn (): array => get_object_vars($this))->bindTo($component, $class->name)();
        foreach ($own as $name => $value) {
            $kept[$class->name.'::'.$name] = $value;
        }
    }

    return $kept;
}

/** Whether two components have kept the same there. What they hold themselves is made anew with each. */
function is_same(mixed $one, mixed $other): bool
{
    if (\is_object($one) && \is_object($other)) {
        return $one::class === $other::class;
    }

    return $one === $other || (!$one && !$other && !\is_scalar($one) && !\is_scalar($other));
}

/** What of a request has been asked by one of its methods; null: nothing. */
function called(Request $request): ?string
{
    foreach ((new \ReflectionClass($request))->getMethods() as $method) {
        $of_all = \in_array($method->class, [Component::class, BaseObject::class], true);
        if (!$of_all && !str_starts_with($method->name, 'set') && !\in_array($method->name, HARMLESS, true) && was_called($method->class.'::'.$method->name)) {
            return $method->name.'()';
        }
    }

    return null;
}

/** What a component has kept that a new one has not; null: nothing. */
function changed(object $component, object $new): ?string
{
    $kept = kept($component);
    foreach (kept($new) + $kept as $name => $value) {
        if (!\array_key_exists($name, $kept) || !is_same($kept[$name], $value)) {
            return ltrim(substr((string) strrchr($name, ':'), 1), '_');
        }
    }

    return null;
}

/** What of the application's has been asked about a visitor, or was made for one, and would be the same for all of them; null: nothing. */
function asked(Application $app): ?string
{
    $definition = $app->getComponents()['request'];
    if (\is_object($definition) && !$definition instanceof \Closure) {
        return 'request, which is configured as an object';
    }
    if (null !== $called = called($app->getRequest())) {
        return 'request: '.$called;
    }
    // A new one, as each request gets it: the application has only asked it for the script and its address.
    $new = \Yii::createObject($definition);
    $new->getScriptFile();
    $new->getBaseUrl();
    if (null !== $changed = changed($app->getRequest(), $new)) {
        return 'request: '.$changed;
    }
    $session = $app->has('session', true) ? $app->get('session') : null;
    if ($session instanceof Session && null !== kept($session)[Session::class.'::_hasSessionId']) {
        return 'session';
    }
    $user = $app->has('user', true) ? $app->get('user') : null;
    if ($user instanceof User && false !== kept($user)[User::class.'::_identity']) {
        return 'user';
    }
    $response = $app->has('response', true) ? kept($app->get('response')) : [];
    foreach (SENT as $name) {
        if ($response[Response::class.'::'.$name] ?? false) {
            return 'response: '.ltrim($name, '_');
        }
    }

    return was_called(Security::class.'::generateRandomKey') ? 'security: generateRandomKey()' : null;
}

/** Whether somebody keeps the request that the application was made with, and would ask it in all requests. */
function is_kept(Application $app): bool
{
    $request = \WeakReference::create($app->getRequest());
    $app->set('request', $app->getComponents()['request']);
    gc_collect_cycles();

    return null !== $request->get();
}

/** An entry of `bootstrap`, as the configuration has it. */
function named(mixed $entry): string
{
    return match (true) {
        \is_string($entry) => $entry,
        \is_array($entry) => (string) ($entry['class'] ?? $entry['__class'] ?? 'an array'),
        default => get_debug_type($entry),
    };
}

function prepare(Application $app): \Closure
{
    if (null !== ($asked = asked($app) ?? (is_kept($app) ? 'request, which it keeps' : null))) {
        $names = implode(', ', array_map(named(...), $app->bootstrap));
        not_for_all("what `bootstrap` names ($names), or an extension's own bootstrap, looks at the request ($asked) before there is one, and would do so once for all visitors");
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
