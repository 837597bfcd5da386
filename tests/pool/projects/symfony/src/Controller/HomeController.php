<?php

declare(strict_types=1);

namespace App\Controller;

use App\Visits;
use Symfony\Bundle\FrameworkBundle\Controller\AbstractController;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpKernel\KernelInterface;
use Symfony\Component\Routing\Annotation\Route;

final class HomeController extends AbstractController
{
    /** What a request changes and the next one must not see. */
    private static int $static = 0;
    private int $property = 0;

    public function __construct(private Visits $visits, private \PDO $database, private string $greeting)
    {
    }

    #[Route('/', name: 'home')]
    public function home(Request $request, KernelInterface $kernel): Response
    {
        return $this->json([
            'env' => $kernel->getEnvironment(),
            'debug' => $kernel->isDebug(),
            'greeting' => $this->greeting,
            'in_server' => $_SERVER['GREETING'] ?? null,
            'script' => $request->server->get('SCRIPT_NAME'),
            'query' => $request->query->all(),
            'static' => ++self::$static,
            'property' => ++$this->property,
            'first' => $this->visits->first(),
            'rows' => $this->database->query('SELECT count(*) FROM sqlite_master')->fetchColumn(),
            'url' => $this->generateUrl('visit', [], 0),
            'project' => getenv('HAYATE_PROJECT'),
            'pid' => getmypid(),
        ]);
    }

    #[Route('/visit', name: 'visit')]
    public function visit(Request $request): Response
    {
        $session = $request->getSession();
        $session->set('visits', $visits = $session->get('visits', 0) + 1);

        return new Response("visit $visits");
    }

    #[Route('/exit')]
    public function leave(): Response
    {
        exit('left early');
    }

    #[Route('/fail')]
    public function fail(): Response
    {
        throw new \DomainException('a failure of the tests');
    }

    #[Route('/exhaust')]
    public function exhaust(): Response
    {
        return new Response(str_repeat('x', 1 << 30));
    }
}
