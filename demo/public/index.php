<?php

/**
 * The front controller: classic mode, where each request boots the application and throws it away.
 *
 * Runs anywhere PHP runs: `hayate serve demo`, php-fpm, or `php -S 127.0.0.1:8000 -t demo/public`.
 */

declare(strict_types=1);

use Windbook\Application;
use Windbook\Mode;

require __DIR__ . '/../src/autoload.php';

Application::boot(dirname(__DIR__), Mode::Classic)->handle();
