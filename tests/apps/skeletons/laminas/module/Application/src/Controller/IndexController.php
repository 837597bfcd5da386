<?php

declare(strict_types=1);

namespace Application\Controller;

use Laminas\Http\Header\SetCookie;
use Laminas\Http\Response;
use Laminas\Mvc\Controller\AbstractActionController;
use Laminas\Mvc\MvcEvent;

final class IndexController extends AbstractActionController
{
    private static int $requests = 0;

    public function __construct(private string $shop)
    {
    }

    public function onDispatch(MvcEvent $event)
    {
        $this->getResponse()->getHeaders()->addHeaderLine('X-Requests', (string) ++self::$requests);

        return parent::onDispatch($event);
    }

    private function page(string $html, int $status = 200): Response
    {
        return $this->getResponse()->setStatusCode($status)->setContent($html);
    }

    public function homeAction(): Response
    {
        $url = $this->url()->fromRoute('person', ['name' => 'ada'], ['force_canonical' => true]);

        return $this->page("<a href=\"{$url}\">Ada</a> of {$this->shop}");
    }

    public function personAction(): Response
    {
        return $this->page("{$this->params('name')} at {$this->getRequest()->getUri()->getPath()} page {$this->params()->fromQuery('page')}");
    }

    public function formAction(): Response
    {
        session_start();
        if (!$this->getRequest()->isPost()) {
            $_SESSION['token'] ??= bin2hex(random_bytes(16));

            return $this->page('<p id="sent">'.htmlspecialchars($_SESSION['sent'] ?? 'nothing').'</p>'
                .'<form method="post" action="/form" enctype="multipart/form-data">'
                ."<input type=\"hidden\" name=\"token\" value=\"{$_SESSION['token']}\"><input name=\"name\"><input type=\"file\" name=\"photo\"></form>");
        }
        if (!hash_equals($_SESSION['token'] ?? random_bytes(16), $this->params()->fromPost('token', ''))) {
            return $this->page('no token', 403);
        }
        $photo = $this->params()->fromFiles('photo');
        $seen = UPLOAD_ERR_OK === ($photo['error'] ?? null) ? $photo['name'].' '.sha1_file($photo['tmp_name']) : 'no photo';
        $_SESSION['sent'] = "{$this->params()->fromPost('name')}, {$seen}";

        return $this->redirect()->toUrl('/form');
    }

    public function visitsAction(): Response
    {
        session_start();
        $_SESSION['visits'] = ($_SESSION['visits'] ?? 0) + 1;

        return $this->page((string) $_SESSION['visits']);
    }

    public function cookieAction(): Response
    {
        $cookies = $this->getRequest()->getCookie();
        $this->getResponse()->getHeaders()->addHeader(new SetCookie('taste', $this->params('taste'), null, '/'));

        return $this->page('had '.($cookies ? $cookies['taste'] ?? 'none' : 'none'));
    }

    public function failsAction(): never
    {
        throw new \RuntimeException('it fails');
    }

    public function leaveAction(): never
    {
        echo 'left';
        exit;
    }
}
