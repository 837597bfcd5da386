<?php

declare(strict_types=1);

namespace App\Controller;

use App\Form\NoteType;
use Symfony\Bundle\FrameworkBundle\Controller\AbstractController;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;

/** Notes that a visitor keeps in the session, and a page that is the same for everybody. */
final class BoardController extends AbstractController
{
    private const WINDS = [
        'calm', 'light air', 'light breeze', 'gentle breeze', 'moderate breeze', 'fresh breeze', 'strong breeze',
        'near gale', 'gale', 'strong gale', 'storm', 'violent storm', 'hurricane',
    ];

    public function home(Request $request): Response
    {
        $session = $request->getSession();
        $session->set('visits', $session->get('visits', 0) + 1);

        return $this->render('home.html.twig', ['visits' => $session->get('visits'), 'notes' => $session->get('notes', [])]);
    }

    public function winds(): Response
    {
        $winds = [];
        foreach (self::WINDS as $force => $name) {
            $winds[$force] = ['name' => $name, 'speed' => 0.836 * $force ** 1.5];
        }

        return $this->render('winds.html.twig', ['winds' => $winds]);
    }

    public function write(Request $request): Response
    {
        $form = $this->createForm(NoteType::class);
        $form->handleRequest($request);
        if ($form->isSubmitted() && $form->isValid()) {
            $session = $request->getSession();
            $session->set('notes', [...$session->get('notes', []), $form->get('text')->getData()]);
            $this->addFlash('notice', 'Note kept.');

            return $this->redirectToRoute('home');
        }

        // Answers 422 by itself when the form was sent and is not valid.
        return $this->render('write.html.twig', ['form' => $form->createView()], new Response(status: $form->isSubmitted() ? 422 : 200));
    }

    public function clear(Request $request): Response
    {
        if (!$this->isCsrfTokenValid('clear', (string) $request->request->get('_token'))) {
            return new Response('bad token', Response::HTTP_FORBIDDEN);
        }
        $request->getSession()->remove('notes');

        return $this->redirectToRoute('home');
    }
}
