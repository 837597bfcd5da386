<?php

declare(strict_types=1);

namespace App\Http\Controllers;

use App\Models\Note;
use App\Models\User;
use Illuminate\Contracts\View\View;
use Illuminate\Http\RedirectResponse;
use Illuminate\Http\Request;

final class NoteController
{
    public function home(Request $request): View
    {
        $visits = $request->session()->increment('visits');

        return view('home', ['visits' => $visits, 'people' => User::withCount('notes')->orderBy('name')->get()]);
    }

    public function index(User $user): View
    {
        return view('notes.index', ['user' => $user, 'notes' => $user->notes()->orderBy('id')->paginate(10)]);
    }

    public function create(): View
    {
        return view('notes.create');
    }

    public function store(Request $request): RedirectResponse
    {
        $note = $request->validate(['title' => ['nullable', 'max:40'], 'text' => ['required', 'max:200']]);
        $request->user()->notes()->create($note);

        return redirect()->route('notes.index', $request->user()->name)->with('status', 'Note kept.');
    }

    public function destroy(Note $note): RedirectResponse
    {
        $note->delete();

        return back()->with('status', 'Note deleted.');
    }
}
