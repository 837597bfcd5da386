<?php

declare(strict_types=1);

namespace App\Controller;

use App\Form\NoteType;
use Symfony\Bundle\FrameworkBundle\Controller\AbstractController;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;

/** Notes that a visitor keeps in the session. */
final class BoardController extends AbstractController
{
    public function home(Request $request): Response
    {
        $session = $request->getSession();
        $session->set('visits', $session->get('visits', 0) + 1);

        return $this->render('home.html.twig', ['visits' => $session->get('visits'), 'notes' => $session->get('notes', [])]);
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
        return $this->renderForm('write.html.twig', ['form' => $form]);
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
