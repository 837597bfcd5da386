<?php

declare(strict_types=1);

namespace App\Controller;

use Symfony\Bundle\FrameworkBundle\Controller\AbstractController;
use Symfony\Component\HttpFoundation\JsonResponse;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\Security\Http\Authentication\AuthenticationUtils;

/** What needs a login. The form is checked, and the logout done, by the firewall. */
final class AccountController extends AbstractController
{
    public function login(AuthenticationUtils $utils): Response
    {
        $error = $utils->getLastAuthenticationError();

        return $this->render('login.html.twig', ['last' => $utils->getLastUsername(), 'error' => $error?->getMessageKey()]);
    }

    public function account(Request $request): Response
    {
        return $this->render('account.html.twig', ['notes' => $request->getSession()->get('notes', [])]);
    }

    public function admin(): JsonResponse
    {
        return new JsonResponse(['secret' => 'for '.$this->getUser()->getUserIdentifier()]);
    }
}
