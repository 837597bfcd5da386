<?php
/**
 * Revolt's event loop, bare: streams that it watches, and as much HTTP as the teaching servers need (sockets/http.php).
 *
 *     php revolt.php PARTS PORT HANDLER PROCESSES
 */

declare(strict_types=1);

use Revolt\EventLoop;

require dirname(__DIR__).'/processes.php';
require dirname(__DIR__).'/handler.php';
require dirname(__DIR__).'/sockets/http.php';

[, $parts, $port, $file, $processes] = $argv;
require "$parts/revolt/vendor/autoload.php";

/**
 * Answers the requests of one connection until it ends.
 *
 * @param resource $stream
 */
function converse($stream, callable $handler): void
{
    stream_set_blocking($stream, false);
    $in = $out = '';
    $closing = false;
    $reading = $writing = '';
    $close = static function () use (&$reading, &$writing, $stream): void {
        EventLoop::cancel($reading);
        EventLoop::cancel($writing);
        fclose($stream);
    };
    $write = static function () use (&$out, &$closing, &$writing, $close, $stream): void {
        $sent = @fwrite($stream, $out);
        if ($sent === false) {
            $close();

            return;
        }
        $out = substr($out, $sent);
        if ($out !== '') {
            EventLoop::enable($writing);
        } elseif ($closing) {
            $close();
        } else {
            EventLoop::disable($writing);
        }
    };
    $writing = EventLoop::disable(EventLoop::onWritable($stream, $write));
    $reading = EventLoop::onReadable($stream, static function () use (&$in, &$out, &$closing, $handler, $write, $close, $stream): void {
        $bytes = @fread($stream, 65536);
        if ($bytes === false || ($bytes === '' && feof($stream))) {
            $close();

            return;
        }
        $in .= $bytes;
        while (!$closing && $in !== '' && ($end = request_end($in)) !== null) {
            $request = substr($in, 0, $end);
            $in = substr($in, $end);
            $closing = !keeps_alive($request);
            $out .= answer_bytes($handler(request_target($request)), !$closing);
        }
        if ($out !== '') {
            $write();
        }
    });
}

processes((int) $processes, static function () use ($port, $file): void {
    $handler = handler($file, false);
    $context = stream_context_create(['socket' => ['so_reuseport' => true, 'backlog' => 4096, 'tcp_nodelay' => true]]);
    $listener = stream_socket_server("tcp://127.0.0.1:$port", $code, $message, context: $context);
    if (!$listener) {
        throw new RuntimeException("port $port: $message");
    }
    stream_set_blocking($listener, false);
    EventLoop::onReadable($listener, static function () use ($listener, $handler): void {
        while ($stream = @stream_socket_accept($listener, 0)) {
            converse($stream, $handler);
        }
    });
    EventLoop::run();
});
