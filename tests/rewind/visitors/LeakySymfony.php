<?php

declare(strict_types=1);

namespace App\Controller;

use App\Leaky;
use Symfony\Bundle\FrameworkBundle\Controller\AbstractController;
use Symfony\Component\HttpFoundation\JsonResponse;
use Symfony\Component\HttpFoundation\Request;

/** Says what a visitor finds in the session, in a service and in a static variable, and leaves its own there. */
final class LeakyController extends AbstractController
{
    public function __construct(private Leaky $leaky)
    {
    }

    public function __invoke(Request $request): JsonResponse
    {
        $name = $this->getUser()?->getUserIdentifier();
        $session = $request->getSession();
        $found = $this->leaky->meet((string) $name) + ['user' => $name, 'session' => $session->get('visits', [])];
        $session->set('visits', [...array_slice($found['session'], -3), $name]);

        return new JsonResponse($found);
    }
}
