<?php

declare(strict_types=1);

namespace App;

use Symfony\Bundle\FrameworkBundle\FrameworkBundle;
use Symfony\Bundle\FrameworkBundle\Kernel\MicroKernelTrait;
use Symfony\Component\DependencyInjection\Loader\Configurator\ContainerConfigurator;
use Symfony\Component\HttpFoundation\JsonResponse;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpKernel\Kernel as BaseKernel;
use Symfony\Component\Routing\Loader\Configurator\RoutingConfigurator;

/** A Symfony application in one file, its kernel being its controller. */
final class Kernel extends BaseKernel
{
    use MicroKernelTrait;

    /** What a request changes and the next one must not see. */
    private static int $static = 0;
    private int $property = 0;

    public function registerBundles(): iterable
    {
        yield new FrameworkBundle();
    }

    public function getProjectDir(): string
    {
        return \dirname(__DIR__);
    }

    private function configureContainer(ContainerConfigurator $container): void
    {
        $container->extension('framework', [
            'secret' => '%env(APP_SECRET)%',
            'http_method_override' => false,
            'session' => ['handler_id' => null, 'storage_factory_id' => 'session.storage.factory.native'],
        ]);
        $container->parameters()->set('greeting', '%env(GREETING)%');
        // Opened by the first who asks, and kept by the container.
        $container->services()->set('database', \PDO::class)->args(['sqlite:%kernel.project_dir%/database.sqlite'])->public();
    }

    private function configureRoutes(RoutingConfigurator $routes): void
    {
        foreach (['home' => '/', 'visit' => '/visit', 'leave' => '/exit', 'fail' => '/fail', 'exhaust' => '/exhaust'] as $name => $path) {
            $routes->add($name, $path)->controller('kernel::'.$name);
        }
    }

    public function home(Request $request): Response
    {
        return new JsonResponse([
            'env' => $this->getEnvironment(),
            'debug' => $this->isDebug(),
            'greeting' => $this->getContainer()->getParameter('greeting'),
            'in_server' => $_SERVER['GREETING'] ?? null,
            'script' => $request->server->get('SCRIPT_NAME'),
            'query' => $request->query->all(),
            'static' => ++self::$static,
            'property' => ++$this->property,
            'rows' => $this->getContainer()->get('database')->query('SELECT count(*) FROM sqlite_master')->fetchColumn(),
            'project' => getenv('HAYATE_PROJECT'),
            'pid' => getmypid(),
        ]);
    }

    public function visit(Request $request): Response
    {
        $session = $request->getSession();
        $session->set('visits', $visits = $session->get('visits', 0) + 1);

        return new Response("visit $visits");
    }

    public function leave(): Response
    {
        exit('left early');
    }

    public function fail(): Response
    {
        throw new \DomainException('a failure of the tests');
    }

    public function exhaust(): Response
    {
        return new Response(str_repeat('x', 1 << 30));
    }
}
