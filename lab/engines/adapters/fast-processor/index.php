<?php
/**
 * What php-fpm runs: hands the request to a handler that has booted, if one listens; else boots the application and answers itself.
 * The X-Answered-By header says which it was.
 */

declare(strict_types=1);

require __DIR__.'/exchange.php';

$target = $_SERVER['REQUEST_URI'];
$handlers = @stream_socket_client('unix://'.__DIR__.'/handlers.sock', timeout: 1);
$answer = $handlers && send($handlers, $target) ? receive($handlers) : null;
$by = 'handler';
if ($answer === null) {
    $answer = (require $_SERVER['HANDLER'])()($target);
    $by = 'index.php';
}
[$status, $headers, $body] = $answer;
http_response_code($status);
foreach ($headers as $name => $value) {
    header("$name: $value");
}
header("X-Answered-By: $by");
echo $body;
