<?php

declare(strict_types=1);

namespace App;

use Symfony\Bundle\FrameworkBundle\Controller\AbstractController;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;

/** A page that counts a visitor's visits in the session, and the form that those meet who want more than it. */
final class PageController extends AbstractController
{
    private const WINDS = [
        'calm', 'light air', 'light breeze', 'gentle breeze', 'moderate breeze', 'fresh breeze', 'strong breeze',
        'near gale', 'gale', 'strong gale', 'storm', 'violent storm', 'hurricane',
    ];

    public function page(Request $request): Response
    {
        $session = $request->getSession();
        $session->set('visits', $session->get('visits', 0) + 1);
        $winds = [];
        foreach (self::WINDS as $force => $name) {
            $winds[$force] = ['name' => $name, 'speed' => 0.836 * $force ** 1.5];
        }

        return $this->render('page.html.twig', ['visits' => $session->get('visits'), 'winds' => $winds]);
    }

    public function login(): Response
    {
        return $this->render('login.html.twig');
    }
}
