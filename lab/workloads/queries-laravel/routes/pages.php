<?php

use App\Http\Controllers\QueriesController;
use Illuminate\Support\Facades\Route;

Route::get('/queries/{id}', [QueriesController::class, 'show'])->where('id', '\d{1,9}');
