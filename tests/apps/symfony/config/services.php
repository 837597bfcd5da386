<?php

declare(strict_types=1);

namespace Symfony\Component\DependencyInjection\Loader\Configurator;

return static function (ContainerConfigurator $container): void {
    $container->parameters()
        ->set('env(APP_SECRET)', 'for tests only')
        ->set('upload_dir', '%kernel.project_dir%/var/uploads');

    $container->services()
        ->defaults()->autowire()->autoconfigure()->bind('$uploads', '%upload_dir%')->bind('$var', '%kernel.project_dir%/var')
        ->load('App\\', '../src/')->exclude('../src/Kernel.php')
        ->load('App\\Controller\\', '../src/Controller/')->tag('controller.service_arguments');
};
