<?php

declare(strict_types=1);

namespace Symfony\Component\DependencyInjection\Loader\Configurator;

use Symfony\Component\HttpKernel\Kernel;

return static function (ContainerConfigurator $container): void {
    $container->extension('framework', [
        'secret' => env('APP_SECRET'),
        'http_method_override' => false,
        'csrf_protection' => true,
        'form' => true,
        // Symfony 7 knows attributes only.
        'validation' => Kernel::MAJOR_VERSION < 7 ? ['enable_annotations' => false] : ['enabled' => true],
        'session' => [
            'storage_factory_id' => 'session.storage.factory.native',
            'handler_id' => null,
            'cookie_samesite' => 'lax',
        ],
        'web_link' => true,
        'php_errors' => ['log' => true],
    ]);
};
