<?php

declare(strict_types=1);

namespace App;

use Mezzio\Helper\ServerUrlHelper;
use Mezzio\Helper\UrlHelper;

final class ConfigProvider
{
    public function __invoke(): array
    {
        return [
            'shop' => getenv('SHOP_NAME'),
            'dependencies' => [
                'factories' => [
                    Shop::class => static fn ($container) => new Shop(
                        $container->get(UrlHelper::class),
                        $container->get(ServerUrlHelper::class),
                        $container->get('config')['shop'],
                    ),
                ],
            ],
        ];
    }
}
