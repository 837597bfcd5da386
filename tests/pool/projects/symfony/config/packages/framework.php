<?php

use Symfony\Component\DependencyInjection\Loader\Configurator\ContainerConfigurator;

return static function (ContainerConfigurator $container): void {
    $container->extension('framework', [
        'secret' => '%env(APP_SECRET)%',
        'http_method_override' => false,
        'router' => ['utf8' => true],
        'session' => ['handler_id' => null, 'storage_factory_id' => 'session.storage.factory.native'],
    ]);
};
