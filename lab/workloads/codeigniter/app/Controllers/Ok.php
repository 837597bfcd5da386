<?php

declare(strict_types=1);

namespace App\Controllers;

use CodeIgniter\HTTP\ResponseInterface;

final class Ok extends BaseController
{
    public function index(): ResponseInterface
    {
        return $this->response->setContentType('text/plain')->setBody('ok');
    }
}
