<?php
/**
 * One process, blocking sockets: accept, read, answer, close, and only then the next client. The first server that one writes.
 *
 *     php blocking.php PORT HANDLER
 */

declare(strict_types=1);

require __DIR__.'/http.php';
require __DIR__.'/listen.php';

[, $port, $file] = $argv;
$handler = (require $file)();
$listener = listen((int) $port);
while ($client = socket_accept($listener)) {
    serve_once($client, $handler);
}
