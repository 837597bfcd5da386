<?php

declare(strict_types=1);

namespace App\Http\Controllers;

use Illuminate\Http\JsonResponse;

/** An answer that needs the framework and nothing else. */
final class StatusController
{
    public function show(): JsonResponse
    {
        return response()->json(['status' => 'OK']);
    }
}
