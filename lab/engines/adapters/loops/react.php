<?php
/**
 * ReactPHP's HTTP server in front of a workload's handler.
 *
 *     php react.php PARTS PORT HANDLER PROCESSES [reboot]
 */

declare(strict_types=1);

use Psr\Http\Message\ServerRequestInterface;
use React\Http\HttpServer;
use React\Http\Message\Response;
use React\Socket\SocketServer;

require dirname(__DIR__).'/processes.php';
require dirname(__DIR__).'/handler.php';

[, $parts, $port, $file, $processes] = $argv;
require "$parts/react/vendor/autoload.php";
$reboot = ($argv[5] ?? '') === 'reboot';
processes((int) $processes, static function () use ($port, $file, $reboot): void {
    $handler = handler($file, $reboot);
    $server = new HttpServer(static function (ServerRequestInterface $request) use ($handler): Response {
        [$status, $headers, $body] = $handler($request->getRequestTarget());

        return new Response($status, $headers, $body);
    });
    $server->on('error', static fn (Throwable $error) => error_log((string) $error));
    $server->listen(new SocketServer("127.0.0.1:$port", ['tcp' => ['so_reuseport' => true, 'backlog' => 4096]]));
});
