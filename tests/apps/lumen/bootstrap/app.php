<?php

declare(strict_types=1);

require_once __DIR__.'/../vendor/autoload.php';

$app = new Laravel\Lumen\Application(dirname(__DIR__));
$app->instance('counter', new class() {
    public int $requests = 0;
});
$app->middleware([static function ($request, callable $next) {
    ++app('counter')->requests;
    $response = $next($request);
    $response->headers->set('X-Requests', (string) app('counter')->requests);

    return $response;
}]);
$app->router->group([], static function ($router): void {
    require __DIR__.'/../routes/web.php';
});

return $app;
