<?php
/*
 * Before a worker script where nobody has hayate_handle_request() (auto_prepend_file): the script boots for each request,
 * and its loop runs once. So php-fpm says what each answer has to be.
 */
declare(strict_types=1);

function hayate_handle_request(callable $handler): bool
{
    static $served = false;
    if ($served) {
        return false;
    }
    $served = true;
    $handler();
    return true;
}
