<?php

/**
 * Runs a CodeIgniter project's own public/index.php up to CodeIgniter::run(), once, and then that for each request; the
 * worker script for projects of CodeIgniter 4.5 and later that `hayate serve` recognises (see front_controller.php).
 *
 * Before run() CodeIgniter has read .env and its configuration, and has set up its autoloader. What it has concluded from
 * there being no request is said anew for each: that it serves the web, not a console, when the request began, and what
 * the superglobals hold.
 */

declare(strict_types=1);

namespace Hayate\Boot;

use CodeIgniter\Autoloader\FileLocatorCached;
use CodeIgniter\CodeIgniter;
use CodeIgniter\Config\Services;

/** By what configuration, and what it includes, gets at a request, at a session or at an answer. */
const ASKS = [
    'CodeIgniter\\HTTP\\Request::__construct',
    'CodeIgniter\\HTTP\\Response::__construct',
    'CodeIgniter\\HTTP\\URI::__construct',
    'CodeIgniter\\HTTP\\Negotiate::__construct',
    'CodeIgniter\\Session\\Session::__construct',
    'CodeIgniter\\Superglobals::server',
    'CodeIgniter\\Superglobals::get',
    'CodeIgniter\\Superglobals::post',
    'CodeIgniter\\Superglobals::cookie',
    'CodeIgniter\\Superglobals::request',
    'CodeIgniter\\Superglobals::getServerArray',
    'CodeIgniter\\Superglobals::getGetArray',
    'CodeIgniter\\Superglobals::getPostArray',
    'CodeIgniter\\Superglobals::getCookieArray',
    'CodeIgniter\\Superglobals::getRequestArray',
    'CodeIgniter\\Superglobals::getFilesArray',
    'CodeIgniter\\Superglobals::getGlobalArray',
];

function prepare(CodeIgniter $app): \Closure
{
    if ('development' === ENVIRONMENT) {
        error_log('CodeIgniter is in development mode: changes of the code are seen after `hayate reload` only; --mode classic shows them at once');
    }
    look_at_calls(ASKS);
    $begin = (function (): void {
        $this->startTime = null;
    })->bindTo($app, CodeIgniter::class);

    // With Optimize::$locatorCacheEnabled it keeps what it has found in a file, which requests write; the boot's copy would know less for ever.
    $locator = Services::locator();
    $read = !$locator instanceof FileLocatorCached ? null : (function (): void {
        $this->cacheUpdated = false;
        $this->loadCache();
    })->bindTo($locator, FileLocatorCached::class);

    return static function () use ($app, $begin, $read): void {
        Services::resetSingle('superglobals');
        if (null !== $read) {
            $read();
        }
        $app->setContext('web');
        $begin();
        $app->run();
    };
}

require __DIR__.'/front_controller.php';
