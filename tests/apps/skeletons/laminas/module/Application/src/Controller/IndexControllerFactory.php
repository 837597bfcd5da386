<?php

declare(strict_types=1);

namespace Application\Controller;

use Psr\Container\ContainerInterface;

final class IndexControllerFactory
{
    public function __invoke(ContainerInterface $container): IndexController
    {
        return new IndexController($container->get('config')['shop']);
    }
}
