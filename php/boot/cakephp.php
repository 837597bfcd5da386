<?php

/**
 * Runs a CakePHP project's own webroot/index.php up to Server::run(), once; the worker script for projects of CakePHP that
 * `hayate serve` recognises (see front_controller.php).
 *
 * Server::run() bootstraps the application (configuration, plugins, their events) and then handles the request. The first
 * is done once, here; each request gets a server of the same application that has it behind it. Middleware is made for
 * each request, as always.
 */

declare(strict_types=1);

namespace Hayate\Boot;

use Cake\Core\Configure;
use Cake\Http\Server;

const DOCUMENT_ROOT = 'webroot';

/** It asks for the host and the scheme, which is harmless as the skeleton does it: that is seen by its text, before it runs. */
const LOOKED_INTO = 'config/bootstrap.php';

/** By what the application's bootstrap, or a plugin's, gets at a request, a session or what is drawn. */
const ASKS = [
    'Cake\\Http\\ServerRequestFactory::fromGlobals',
    'Cake\\Http\\ServerRequest::__construct',
    'Cake\\Http\\ServerRequest::is',
    'Cake\\Http\\Session::create',
    'Cake\\Http\\Session::__construct',
    'Laminas\\Diactoros\\ServerRequestFactory::fromGlobals',
    'Cake\\Utility\\Security::randomBytes',
    'Cake\\Utility\\Text::uuid',
];

function prepare(Server $server): \Closure
{
    (new \ReflectionMethod($server, 'bootstrap'))->invoke($server);
    look_at_calls(ASKS);
    if (Configure::read('debug')) {
        error_log('CakePHP is in debug mode: changes of the code are seen after `hayate reload` only; --mode classic shows them at once');
    }
    $booted = new class($server->getApp()) extends Server {
        protected function bootstrap(): void
        {
        }
    };

    return static function () use ($booted): void {
        $booted->emit($booted->run());
    };
}

require __DIR__.'/front_controller.php';
