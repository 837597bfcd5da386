<?php
/* The answer, once per request. */

declare(strict_types=1);

[$status, $headers, $body] = (require dirname(__DIR__).'/handler.php')()($_SERVER['REQUEST_URI']);
http_response_code($status);
foreach ($headers as $name => $value) {
    header("$name: $value");
}
echo $body;
