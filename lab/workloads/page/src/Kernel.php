<?php

declare(strict_types=1);

namespace App;

use Symfony\Bundle\FrameworkBundle\Kernel\MicroKernelTrait;
use Symfony\Component\DependencyInjection\Loader\Configurator\ContainerConfigurator;
use Symfony\Component\HttpKernel\Kernel as BaseKernel;
use Symfony\Component\Routing\Loader\Configurator\RoutingConfigurator;
use Symfony\Component\Security\Core\User\InMemoryUser;

/** Symfony as its recipes set it up for a site with pages: a firewall that keeps who is logged in in the session, and Twig. */
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
            'csrf_protection' => true,
            // PHP's own sessions: a file for each visitor, locked while a request of theirs is answered.
            'session' => [
                'storage_factory_id' => 'session.storage.factory.native',
                'handler_id' => null,
                'cookie_samesite' => 'lax',
            ],
            'php_errors' => ['log' => true],
        ]);
        $container->extension('twig', ['default_path' => '%kernel.project_dir%/templates', 'strict_variables' => true]);
        $container->extension('security', [
            // The only way since Symfony 6, and no key of Symfony 7.
            ...(self::MAJOR_VERSION < 6 ? ['enable_authenticator_manager' => true] : []),
            'password_hashers' => [InMemoryUser::class => 'auto'],
            // Nobody knows a password: visitors stay strangers.
            'providers' => ['people' => ['memory' => ['users' => ['ada' => ['password' => null, 'roles' => ['ROLE_USER']]]]]],
            'firewalls' => [
                'main' => [
                    'lazy' => true,
                    'provider' => 'people',
                    'form_login' => ['login_path' => 'login', 'check_path' => 'login', 'enable_csrf' => true],
                    'logout' => ['path' => 'logout', 'target' => 'page'],
                ],
            ],
            'access_control' => [['path' => '^/account', 'roles' => 'ROLE_USER']],
        ]);
        $container->services()->defaults()->autowire()->autoconfigure()->set(PageController::class);
    }

    private function configureRoutes(RoutingConfigurator $routes): void
    {
        $routes->add('page', '/page')->controller([PageController::class, 'page'])->methods(['GET']);
        $routes->add('login', '/login')->controller([PageController::class, 'login'])->methods(['GET', 'POST']);
        $routes->add('logout', '/logout')->methods(['GET']);
        $routes->add('account', '/account')->controller([PageController::class, 'page'])->methods(['GET']);
    }
}
