<?php

declare(strict_types=1);

use Illuminate\Http\Request;

$router->get('/', fn (Request $request) => '<a href="'.url('/people/ada').'">Ada</a>');
$router->get('/people/{name}', fn (Request $request, string $name) => "{$name} at /{$request->path()}?{$request->getQueryString()}");
$router->post('/echo', fn (Request $request) => response()->json([
    'body' => $request->request->all(),
    'cookies' => $request->cookies->all(),
    'header' => $request->header('X-Test'),
], 201));
$router->get('/session', function (): string {
    session_start();
    $_SESSION['visits'] = ($_SESSION['visits'] ?? 0) + 1;

    return (string) $_SESSION['visits'];
});
$router->get('/exit', function (): void {
    echo 'left';
    exit;
});
$router->get('/fails', function (): void {
    throw new RuntimeException('it fails');
});
