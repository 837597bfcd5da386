<?php

declare(strict_types=1);

namespace App\Controllers;

use CodeIgniter\HTTP\ResponseInterface;

final class Shop extends BaseController
{
    private static int $requests = 0;

    public function initController($request, $response, $logger): void
    {
        parent::initController($request, $response, $logger);
        $response->setHeader('X-Requests', (string) ++self::$requests);
    }

    public function home(): string
    {
        return '<a href="'.site_url('people/ada').'">Ada</a> of '.env('shop.name');
    }

    public function person(string $name): string
    {
        return "{$name} at /{$this->request->getPath()} page {$this->request->getGet('page')}";
    }

    public function form(): string
    {
        return '<p id="sent">'.esc(session('sent') ?? 'nothing').'</p><form method="post" action="/form" enctype="multipart/form-data">'
            .csrf_field().'<input name="name"><input type="file" name="photo"></form>';
    }

    public function sent(): ResponseInterface
    {
        $photo = $this->request->getFile('photo');
        $seen = $photo?->isValid() ? sprintf('%s %s', $photo->getClientName(), sha1_file($photo->getTempName())) : 'no photo';
        session()->set('sent', $this->request->getPost('name').', '.$seen);

        return $this->response->redirect('/form');
    }

    public function visits(): string
    {
        session()->set('visits', (session('visits') ?? 0) + 1);

        return (string) session('visits');
    }

    public function cookie(string $taste): ResponseInterface
    {
        return $this->response->setCookie('taste', $taste)->setBody('had '.($this->request->getCookie('taste') ?? 'none'));
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
