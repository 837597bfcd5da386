<?php

use App\Http\Controllers\AnswerController;
use Illuminate\Support\Facades\Route;

Route::get('json', [AnswerController::class, 'json']);
Route::put('echo', [AnswerController::class, 'echo']);
Route::get('trail/{step}', [AnswerController::class, 'trail']);
Route::get('statics', [AnswerController::class, 'statics']);
Route::get('settings/{locale?}', [AnswerController::class, 'settings']);
Route::get('stream/{name}', [AnswerController::class, 'stream'])->whereAlphaNumeric('name');
Route::get('later/{name}', [AnswerController::class, 'later'])->whereAlphaNumeric('name');
Route::get('broken', [AnswerController::class, 'broken']);
Route::get('exhausted', [AnswerController::class, 'exhausted']);
Route::get('exit', [AnswerController::class, 'exit']);
Route::get('half-done', [AnswerController::class, 'halfDone']);
