<?php

use App\Http\Controllers\BlogController;
use App\Http\Controllers\StatusController;
use App\Http\Controllers\UserController;
use Illuminate\Support\Facades\Route;

Route::get('/blog', [BlogController::class, 'list']);
Route::get('/users/{id}', [UserController::class, 'show'])->where('id', '\d{1,9}');
Route::get('/status', [StatusController::class, 'show']);
