<?php

declare(strict_types=1);

use Psr\Http\Message\ResponseInterface as Response;
use Psr\Http\Message\ServerRequestInterface as Request;

require dirname(__DIR__).'/vendor/autoload.php';

$counter = new class() {
    public int $requests = 0;
};
$app = new Slim\App(['settings' => ['displayErrorDetails' => false]]);

$app->add(function (Request $request, Response $response, callable $next) use ($counter): Response {
    ++$counter->requests;

    return $next($request, $response)->withHeader('X-Requests', (string) $counter->requests);
});
$app->get('/', function (Request $request, Response $response): Response {
    $response->getBody()->write('<a href="'.$request->getUri()->getBaseUrl().'/people/ada">Ada</a>');

    return $response;
});
$app->get('/people/{name}', function (Request $request, Response $response, array $args): Response {
    $response->getBody()->write("{$args['name']} at {$request->getUri()->getPath()}?{$request->getUri()->getQuery()}");

    return $response;
});
$app->post('/echo', function (Request $request, Response $response): Response {
    return $response->withJson([
        'body' => $request->getParsedBody(),
        'cookies' => $request->getCookieParams(),
        'header' => $request->getHeaderLine('X-Test'),
    ], 201);
});
$app->get('/session', function (Request $request, Response $response): Response {
    session_start();
    $_SESSION['visits'] = ($_SESSION['visits'] ?? 0) + 1;
    $response->getBody()->write((string) $_SESSION['visits']);

    return $response;
});
$app->get('/exit', function (): void {
    echo 'left';
    exit;
});
$app->get('/fails', function (): void {
    throw new RuntimeException('it fails');
});

$app->run();
