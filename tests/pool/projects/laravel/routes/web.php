<?php

use App\Http\Controllers\HomeController;
use Illuminate\Http\Request;
use Illuminate\Support\Facades\Route;

Route::get('/', HomeController::class);

Route::get('/visit', function (Request $request) {
    $request->session()->put('visits', $visits = $request->session()->get('visits', 0) + 1);

    return "visit $visits";
});

Route::get('/exit', function () {
    exit('left early');
});

Route::get('/fail', function () {
    throw new DomainException('a failure of the tests');
});

Route::get('/exhaust', function () {
    return str_repeat('x', 1 << 30);
});
