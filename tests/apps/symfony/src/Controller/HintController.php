<?php

declare(strict_types=1);

namespace App\Controller;

use App\Signals;
use Symfony\Bundle\FrameworkBundle\Controller\AbstractController;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\WebLink\Link;

/** Early hints as Symfony's documentation has them. */
final class HintController extends AbstractController
{
    /** The page itself when the test says so. Before 6.3 Symfony has no hints. */
    public function page(Signals $signals, string $name): Response
    {
        $response = method_exists($this, 'sendEarlyHints') ? $this->sendEarlyHints([
            (new Link(href: '/style.css'))->withAttribute('as', 'style'),
            new Link('preconnect', 'https://fonts.example'),
        ]) : new Response();
        $signals->wait($name);

        return $this->render('winds.html.twig', ['winds' => []], $response);
    }
}
