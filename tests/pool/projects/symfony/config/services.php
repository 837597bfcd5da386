<?php

use Symfony\Component\DependencyInjection\Loader\Configurator\ContainerConfigurator;

return static function (ContainerConfigurator $container): void {
    $services = $container->services()->defaults()->autowire()->autoconfigure()->bind('string $greeting', '%env(GREETING)%');
    $services->load('App\\', '../src/')->exclude('../src/{DependencyInjection,Entity,Kernel.php}');
    // Opened by the first who asks, and kept by the container.
    $services->set(PDO::class, PDO::class)->args(['sqlite:%kernel.project_dir%/database.sqlite']);
    // The kernel itself looks for YAML there.
    $container->import('packages/*.php');
};
