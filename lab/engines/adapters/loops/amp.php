<?php
/**
 * Amp's HTTP server in front of a workload's handler: a fibre for each request.
 *
 *     php amp.php PARTS PORT HANDLER PROCESSES
 */

declare(strict_types=1);

use Amp\Http\Server\DefaultErrorHandler;
use Amp\Http\Server\Driver\DefaultHttpDriverFactory;
use Amp\Http\Server\Driver\SocketClientFactory;
use Amp\Http\Server\Request;
use Amp\Http\Server\RequestHandler\ClosureRequestHandler;
use Amp\Http\Server\Response;
use Amp\Http\Server\SocketHttpServer;
use Amp\Socket\BindContext;
use Amp\Socket\ResourceServerSocketFactory;
use Psr\Log\NullLogger;
use Revolt\EventLoop;

require dirname(__DIR__).'/processes.php';
require dirname(__DIR__).'/handler.php';

[, $parts, $port, $file, $processes] = $argv;
require "$parts/amp/vendor/autoload.php";
processes((int) $processes, static function () use ($port, $file): void {
    $handler = handler($file, false);
    $log = new NullLogger();
    // No compression and no limits for each address: all clients here are one address.
    $server = new SocketHttpServer(
        $log,
        new ResourceServerSocketFactory(),
        new SocketClientFactory($log),
        httpDriverFactory: new DefaultHttpDriverFactory($log),
    );
    $server->expose("127.0.0.1:$port", (new BindContext())->withReusePort()->withBacklog(4096)->withTcpNoDelay());
    $server->start(new ClosureRequestHandler(static function (Request $request) use ($handler): Response {
        $uri = $request->getUri();
        [$status, $headers, $body] = $handler($uri->getPath().($uri->getQuery() === '' ? '' : '?'.$uri->getQuery()));

        return new Response($status, $headers, $body);
    }), new DefaultErrorHandler());
    EventLoop::run();
});
