<?php

declare(strict_types=1);

namespace App;

use Monolog\Formatter\LineFormatter;
use Monolog\Handler\BufferHandler;
use Monolog\Handler\FingersCrossedHandler;
use Monolog\Handler\StreamHandler;
use Monolog\Logger;

/** Log channels that keep lines back. */
final class Channels
{
    public function __invoke(array $config): Logger
    {
        $file = (new StreamHandler(getenv('OUT') . "/laravel_{$config['kind']}.log"))->setFormatter(new LineFormatter("%message%\n"));

        return new Logger($config['kind'], [
            $config['kind'] === 'crossed'
                ? new FingersCrossedHandler($file, Logger::EMERGENCY, 0, true, true, Logger::INFO)
                : new BufferHandler($file),
        ]);
    }
}
