<?php

declare(strict_types=1);

namespace Database\Seeders;

use App\Models\User;
use Illuminate\Database\Seeder;
use Illuminate\Support\Facades\Hash;

/** The people who can log in, and 25 notes of one who never does, to turn pages in. */
final class DatabaseSeeder extends Seeder
{
    public function run(): void
    {
        foreach (['ada' => 'analytical', 'grace' => 'compiler', 'archive' => bin2hex(random_bytes(8))] as $name => $password) {
            User::create(['name' => $name, 'email' => "$name@example.org", 'password' => Hash::make($password)]);
        }
        $archive = User::firstWhere('name', 'archive');
        for ($number = 1; $number <= 25; $number++) {
            $archive->notes()->create(['text' => "note $number"]);
        }
    }
}
