<?php

use App\Http\Controllers\NoteController;
use App\Http\Controllers\PictureController;
use App\Http\Controllers\SessionController;
use Illuminate\Support\Facades\Route;

Route::get('/', [NoteController::class, 'home'])->name('home');
Route::get('people/{user:name}', [NoteController::class, 'index'])->name('notes.index');

Route::get('login', [SessionController::class, 'create'])->name('login');
Route::post('login', [SessionController::class, 'store']);

Route::middleware('auth')->group(static function (): void {
    Route::post('logout', [SessionController::class, 'destroy'])->name('logout');
    Route::get('account', [SessionController::class, 'show'])->name('account');
    Route::get('notes/create', [NoteController::class, 'create'])->name('notes.create');
    Route::post('notes', [NoteController::class, 'store'])->name('notes.store');
    Route::delete('notes/{note}', [NoteController::class, 'destroy'])->name('notes.destroy')->can('delete', 'note');
    Route::get('pictures/create', [PictureController::class, 'create'])->name('pictures.create');
    Route::post('pictures', [PictureController::class, 'store'])->name('pictures.store');
});
Route::get('pictures/{name}', [PictureController::class, 'show'])->name('pictures.show')->where('name', '[\w.]+');
