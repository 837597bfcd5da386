<?php

declare(strict_types=1);

namespace App\Http\Controllers;

use App\Models\User;
use Illuminate\Http\JsonResponse;

final class UserController
{
    public function show(int $id): JsonResponse
    {
        $user = User::query()->find($id);

        return $user === null ? new JsonResponse(['error' => 'no such user'], 404) : new JsonResponse($user);
    }
}
