<?php

declare(strict_types=1);

namespace App\Http\Controllers;

use Illuminate\Contracts\View\View;
use Illuminate\Http\RedirectResponse;
use Illuminate\Http\Request;
use Illuminate\Support\Facades\Storage;
use Symfony\Component\HttpFoundation\StreamedResponse;

/** Takes pictures and gives them back. */
final class PictureController
{
    public function create(): View
    {
        return view('pictures.create');
    }

    public function store(Request $request): RedirectResponse
    {
        $request->validate(['picture' => ['required', 'image', 'dimensions:max_width=64']]);
        $path = $request->file('picture')->store('pictures', 'public');

        return redirect()->route('pictures.show', basename($path));
    }

    public function show(Request $request, string $name): StreamedResponse
    {
        $disk = Storage::disk('public');
        abort_unless($disk->exists("pictures/$name"), 404);

        return $request->boolean('download') ? $disk->download("pictures/$name", 'größe.png') : $disk->response("pictures/$name");
    }
}
