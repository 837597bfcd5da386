<?php

declare(strict_types=1);

namespace App;

use Symfony\Bundle\FrameworkBundle\Kernel\MicroKernelTrait;
use Symfony\Component\DependencyInjection\Loader\Configurator\ContainerConfigurator;
use Symfony\Component\HttpKernel\Kernel as BaseKernel;
use Symfony\Component\Routing\Loader\Configurator\RoutingConfigurator;

/** Symfony as its recipe sets it up for an API: the framework bundle, compiled for production, and one route. */
final class Kernel extends BaseKernel
{
    use MicroKernelTrait;

    public function getProjectDir(): string
    {
        return \dirname(__DIR__);
    }

    private function configureContainer(ContainerConfigurator $container): void
    {
        $container->extension('framework', [
            'secret' => 'for measuring only',
            'http_method_override' => false,
            'php_errors' => ['log' => true],
        ]);
        $container->parameters()->set('service_name', 'info');
        $container->services()->set(InfoController::class)
            ->args(['%kernel.environment%', '%service_name%'])
            ->tag('controller.service_arguments');
    }

    private function configureRoutes(RoutingConfigurator $routes): void
    {
        $routes->add('info', '/info')->controller([InfoController::class, 'info'])->methods(['GET']);
    }
}
