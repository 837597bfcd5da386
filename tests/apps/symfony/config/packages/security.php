<?php

declare(strict_types=1);

namespace Symfony\Component\DependencyInjection\Loader\Configurator;

use Symfony\Component\HttpKernel\Kernel;
use Symfony\Component\Security\Core\User\InMemoryUser;

return static function (ContainerConfigurator $container): void {
    $container->extension('security', [
        // The only way since Symfony 6, and no key of Symfony 7.
        ...(Kernel::MAJOR_VERSION < 6 ? ['enable_authenticator_manager' => true] : []),
        // The least bcrypt allows: a test logs in often.
        'password_hashers' => [InMemoryUser::class => ['algorithm' => 'bcrypt', 'cost' => 4]],
        'providers' => ['people' => ['memory' => ['users' => [
            // Passwords: "analytical", "compiler".
            'ada' => ['password' => '$2y$04$nNZcdM9NHtJLXNCYGqALu.1Jr7Dig.pMTLjGVQXA5lVAchW6EGsUO', 'roles' => ['ROLE_ADMIN']],
            'grace' => ['password' => '$2y$04$84jilXphZgFatEwNUdsxFeDx9zvhQfTTz1tEq97QVgkAuy4h5C1w6', 'roles' => ['ROLE_USER']],
        ]]]],
        'firewalls' => [
            'status' => ['pattern' => '^/json$', 'security' => false],
            'main' => [
                'lazy' => true,
                'provider' => 'people',
                'form_login' => ['login_path' => 'login', 'check_path' => 'login', 'enable_csrf' => true, 'default_target_path' => 'account'],
                'logout' => ['path' => 'logout', 'target' => 'home', 'csrf_parameter' => '_token', (Kernel::MAJOR_VERSION < 7 ? 'csrf_token_generator' : 'csrf_token_manager') => 'security.csrf.token_manager'],
            ],
        ],
        'role_hierarchy' => ['ROLE_ADMIN' => 'ROLE_USER'],
        'access_control' => [
            ['path' => '^/account', 'roles' => 'ROLE_USER'],
            ['path' => '^/admin', 'roles' => 'ROLE_ADMIN'],
        ],
    ]);
};
