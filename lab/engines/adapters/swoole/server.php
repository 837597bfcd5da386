<?php
/**
 * Swoole's or OpenSwoole's HTTP server in front of a workload's handler.
 *
 *     php server.php PORT HANDLER WORKERS base|process THREADS
 */

declare(strict_types=1);

require dirname(__DIR__).'/handler.php';

[, $port, $file, $workers, $mode, $threads] = $argv;
// OpenSwoole has the same classes under its own name; the modes are constants of both.
$class = class_exists(OpenSwoole\Http\Server::class) ? OpenSwoole\Http\Server::class : Swoole\Http\Server::class;
$modes = ['base' => defined('SWOOLE_BASE') ? SWOOLE_BASE : OpenSwoole\Server::SIMPLE_MODE,
    'process' => defined('SWOOLE_PROCESS') ? SWOOLE_PROCESS : OpenSwoole\Server::POOL_MODE];
$server = new $class('127.0.0.1', (int) $port, $modes[$mode]);
$server->set([
    'worker_num' => (int) $workers,
    // In PROCESS mode these read and write the sockets; in BASE mode there are none.
    'reactor_num' => (int) $threads,
    'backlog' => 4096,
    'max_request' => 0,
    // One request at a time in a worker, as in the other engines: handlers are plain blocking PHP.
    'enable_coroutine' => false,
    'http_compression' => false,
    'log_level' => 4,
    'pid_file' => __DIR__.'/server.pid',
]);
$handler = null;
$server->on('workerStart', static function () use (&$handler, $file): void {
    $handler = handler($file, false);
});
$server->on('request', static function ($request, $response) use (&$handler): void {
    $query = $request->server['query_string'] ?? '';
    [$status, $headers, $body] = $handler($request->server['request_uri'].($query === '' ? '' : "?$query"));
    $response->status($status);
    foreach ($headers as $name => $value) {
        $response->header($name, $value);
    }
    $response->end($body);
});
$server->start();
