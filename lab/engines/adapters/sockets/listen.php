<?php
/** Sockets of the teaching servers. */

declare(strict_types=1);

/** A listening socket on 127.0.0.1. */
function listen(int $port): Socket
{
    $listener = socket_create(AF_INET, SOCK_STREAM, SOL_TCP) ?: exit(1);
    socket_set_option($listener, SOL_SOCKET, SO_REUSEADDR, 1);
    if (!socket_bind($listener, '127.0.0.1', $port) || !socket_listen($listener, 4096)) {
        fwrite(STDERR, "port $port: ".socket_strerror(socket_last_error($listener))."\n");
        exit(1);
    }

    return $listener;
}

/** Reads one request from a blocking connection, answers it, and closes: whoever kept it would keep everyone else waiting. */
function serve_once(Socket $client, callable $handler): void
{
    // A client that connects and says nothing would stop the server for good.
    socket_set_option($client, SOL_SOCKET, SO_RCVTIMEO, ['sec' => 1, 'usec' => 0]);
    $bytes = '';
    while (($end = request_end($bytes)) === null) {
        $more = @socket_read($client, 65536);
        if ($more === false || $more === '') {
            socket_close($client);

            return;
        }
        $bytes .= $more;
    }
    $answer = answer_bytes($handler(request_target(substr($bytes, 0, $end))), false);
    while ($answer !== '' && ($sent = @socket_write($client, $answer)) !== false) {
        $answer = substr($answer, $sent);
    }
    socket_close($client);
}
