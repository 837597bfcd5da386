<?php

declare(strict_types=1);

use Psr\Http\Message\ResponseInterface as Response;
use Psr\Http\Message\ServerRequestInterface as Request;
use Psr\Http\Server\RequestHandlerInterface as Handler;
use Slim\Factory\AppFactory;
use Slim\Routing\RouteContext;

if (PHP_SAPI === 'cli-server' && is_file(__DIR__.parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH))) {
    return false;
}

require __DIR__.'/../vendor/autoload.php';

$shop = getenv('SHOP_NAME');
$counter = new class() {
    public int $requests = 0;
};
$app = AppFactory::create();
$app->addBodyParsingMiddleware();
$app->addRoutingMiddleware();
$app->add(static function (Request $request, Handler $handler) use ($counter): Response {
    ++$counter->requests;

    return $handler->handle($request)->withHeader('X-Requests', (string) $counter->requests);
});
$app->addErrorMiddleware(false, true, true);

$write = static function (Response $response, string $html): Response {
    $response->getBody()->write($html);

    return $response;
};
$app->get('/', static function (Request $request, Response $response) use ($write, $shop): Response {
    $url = RouteContext::fromRequest($request)->getRouteParser()->fullUrlFor($request->getUri(), 'person', ['name' => 'ada']);

    return $write($response, "<a href=\"{$url}\">Ada</a> of {$shop}");
});
$app->get('/people/{name}', static function (Request $request, Response $response, array $args) use ($write): Response {
    return $write($response, "{$args['name']} at {$request->getUri()->getPath()} page ".($request->getQueryParams()['page'] ?? ''));
})->setName('person');
$app->get('/form', static function (Request $request, Response $response) use ($write): Response {
    session_start();
    $_SESSION['token'] ??= bin2hex(random_bytes(16));

    return $write($response, '<p id="sent">'.htmlspecialchars($_SESSION['sent'] ?? 'nothing').'</p>'
        .'<form method="post" action="/form" enctype="multipart/form-data">'
        ."<input type=\"hidden\" name=\"token\" value=\"{$_SESSION['token']}\"><input name=\"name\"><input type=\"file\" name=\"photo\"></form>");
});
$app->post('/form', static function (Request $request, Response $response) use ($write): Response {
    session_start();
    $sent = $request->getParsedBody();
    if (!hash_equals($_SESSION['token'] ?? random_bytes(16), $sent['token'] ?? '')) {
        return $write($response->withStatus(403), 'no token');
    }
    $photo = $request->getUploadedFiles()['photo'] ?? null;
    $seen = $photo?->getError() === UPLOAD_ERR_OK ? $photo->getClientFilename().' '.sha1((string) $photo->getStream()) : 'no photo';
    $_SESSION['sent'] = "{$sent['name']}, {$seen}";

    return $response->withStatus(302)->withHeader('Location', '/form');
});
$app->get('/visits', static function (Request $request, Response $response) use ($write): Response {
    session_start();
    $_SESSION['visits'] = ($_SESSION['visits'] ?? 0) + 1;

    return $write($response, (string) $_SESSION['visits']);
});
$app->get('/cookie/{taste}', static function (Request $request, Response $response, array $args) use ($write): Response {
    $had = $request->getCookieParams()['taste'] ?? 'none';

    return $write($response->withHeader('Set-Cookie', "taste={$args['taste']}; path=/"), "had {$had}");
});
$app->get('/fails', static function (): never {
    throw new RuntimeException('it fails');
});
$app->get('/exit', static function (): never {
    echo 'left';
    exit;
});

$app->run();
