<?php

declare(strict_types=1);

namespace App\Http\Controllers;

use App\Models\Article;
use App\Models\Reader;
use Illuminate\Http\JsonResponse;
use Illuminate\Support\Facades\DB;

/** Ten queries in a row, of the kinds that the published comparison names: lookups, lists, a write, a counter, sums, the most read. */
final class QueriesController
{
    public function show(int $id): JsonResponse
    {
        $user = Reader::query()->find($id);
        if ($user === null) {
            return new JsonResponse(['error' => 'no such user'], 404);
        }
        $posts = $user->articles()->orderBy('id')->limit(10)->get();
        $post = $posts->first();
        DB::table('views')->insert(['article_id' => $post->id, 'reader_id' => $user->id, 'seen_at' => now()->toDateTimeString()]);
        Article::query()->whereKey($post->id)->increment('views_count');
        $views = DB::table('views')->where('article_id', $post->id)->selectRaw('COUNT(*) AS total, MAX(seen_at) AS last')->first();
        $top = Article::query()->orderByDesc('views_count')->limit(5)->get();
        $busiest = DB::table('articles')->selectRaw('reader_id, COUNT(*) AS posts')->groupBy('reader_id')->orderByDesc('posts')->limit(5)->get();
        $other = Reader::query()->find($id % 100 + 1);
        $theirs = $other->articles()->orderBy('id')->limit(5)->get();
        $recent = DB::table('views')->orderByDesc('id')->limit(10)->get();

        return new JsonResponse([
            'user' => $user->name,
            'posts' => $posts->pluck('title'),
            'views' => $views,
            'top' => $top->pluck('id'),
            'busiest' => $busiest,
            'other' => $other->name,
            'theirs' => $theirs->pluck('title'),
            'mine' => $posts->count(),
            'recent' => $recent->count(),
        ]);
    }
}
