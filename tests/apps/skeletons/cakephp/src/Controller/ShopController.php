<?php

declare(strict_types=1);

namespace App\Controller;

use Cake\Core\Configure;
use Cake\Event\EventInterface;
use Cake\Http\Cookie\Cookie;
use Cake\Http\Response;
use Cake\Routing\Router;

final class ShopController extends AppController
{
    private static int $requests = 0;

    public function initialize(): void
    {
    }

    public function beforeFilter(EventInterface $event): void
    {
        $this->response = $this->response->withHeader('X-Requests', (string) ++self::$requests);
    }

    private function page(string $html): Response
    {
        return $this->response->withStringBody($html);
    }

    public function home(): Response
    {
        $url = Router::url(['controller' => 'Shop', 'action' => 'person', 'name' => 'ada'], true);

        return $this->page("<a href=\"{$url}\">Ada</a> of ".Configure::read('Shop.name'));
    }

    public function person(string $name): Response
    {
        return $this->page("{$name} at {$this->request->getPath()} page {$this->request->getQuery('page')}");
    }

    public function form(): Response
    {
        $token = h($this->request->getAttribute('csrfToken'));
        $sent = h($this->request->getSession()->read('sent') ?? 'nothing');

        return $this->page("<p id=\"sent\">{$sent}</p><form method=\"post\" action=\"/form\" enctype=\"multipart/form-data\">"
            ."<input type=\"hidden\" name=\"_csrfToken\" value=\"{$token}\"><input name=\"name\"><input type=\"file\" name=\"photo\"></form>");
    }

    public function sent(): Response
    {
        $photo = $this->request->getUploadedFile('photo');
        $seen = $photo?->getError() === UPLOAD_ERR_OK ? $photo->getClientFilename().' '.sha1((string) $photo->getStream()) : 'no photo';
        $this->request->getSession()->write('sent', $this->request->getData('name').', '.$seen);

        return $this->redirect('/form');
    }

    public function visits(): Response
    {
        $session = $this->request->getSession();
        $session->write('visits', (int) $session->read('visits') + 1);

        return $this->page((string) $session->read('visits'));
    }

    public function cookie(string $taste): Response
    {
        return $this->page('had '.($this->request->getCookie('taste') ?? 'none'))->withCookie(new Cookie('taste', $taste));
    }

    public function fails(): never
    {
        throw new \RuntimeException('it fails');
    }

    public function leave(): never
    {
        echo 'left';
        exit;
    }
}
