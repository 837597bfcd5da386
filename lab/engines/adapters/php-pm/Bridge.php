<?php

declare(strict_types=1);

namespace Lab;

use PHPPM\Bridges\BridgeInterface;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;
use React\Http\Message\Response;

require_once dirname(__DIR__).'/handler.php';

/** A workload's handler as PHP-PM wants an application. */
final class Bridge implements BridgeInterface
{
    /** @var callable(string): array{int, array<string, string>, string} */
    private $handler;

    /** Boots the application, once in each worker. */
    public function bootstrap($appBootstrap, $appenv, $debug): void
    {
        $this->handler = \handler($appBootstrap, false);
    }

    public function handle(ServerRequestInterface $request): ResponseInterface
    {
        [$status, $headers, $body] = ($this->handler)($request->getRequestTarget());

        return new Response($status, $headers, $body);
    }
}
