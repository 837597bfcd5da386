<?php

declare(strict_types=1);

namespace App\Http\Controllers;

use App\Leaky;
use Illuminate\Http\Request;

/** Says what a visitor finds in the session, in a singleton and in a static variable, and leaves its own there. */
final class LeakyController
{
    public function __construct(private Leaky $leaky)
    {
    }

    public function __invoke(Request $request): array
    {
        $name = $request->user()->name;
        $found = $this->leaky->meet($name) + ['user' => $name, 'session' => $request->session()->get('visits', [])];
        $request->session()->put('visits', [...array_slice($found['session'], -3), $name]);

        return $found;
    }
}
