<?php

declare(strict_types=1);

namespace App;

use App\Models\Post;
use Illuminate\Database\Eloquent\Collection;
use Illuminate\Support\Facades\Cache;

/** The newest posts with their authors and the posts they are linked with. */
final class Blog
{
    private const COUNT = 20;
    private const RELATIONS = ['author', 'linking', 'linked'];

    /**
     * The list as plain data, from where BLOG_CACHE says.
     *
     * @return list<array{title: string, body: string, published: string, author: string, linking: list<string>, linked: list<string>}>
     */
    public function list(): array
    {
        return match (Setting::get('BLOG_CACHE')) {
            'apcu' => Cache::store('apc')->rememberForever('list', fn (): array => $this->query()),
            'file' => require storage_path('list.php'),
            'class' => Stored::LIST,
            default => $this->query(),
        };
    }

    /** The same from the database. */
    public function query(): array
    {
        return $this->posts()->map(static fn (Post $post): array => [
            'title' => $post->title,
            'body' => $post->body,
            'published' => (string) $post->published_at,
            'author' => $post->author->name,
            'linking' => $post->linking->pluck('title')->all(),
            'linked' => $post->linked->pluck('title')->all(),
        ])->all();
    }

    private function posts(): Collection
    {
        $query = Post::query()->orderByDesc('published_at')->orderByDesc('id');
        if (Setting::on('BLOG_LIMIT')) {
            $posts = $query->limit(self::COUNT)->get();
        } else {
            // The mistake that the experiment is about: all rows become objects, and PHP chooses. Looking at the time of each is what
            // makes casts cost something.
            $now = Setting::on('BLOG_CASTS') ? now() : now()->toDateTimeString();
            $posts = $query->get()->filter(static fn (Post $post): bool => $post->published_at <= $now)->take(self::COUNT)->values();
        }

        return Setting::on('BLOG_EAGER') ? $posts->load(self::RELATIONS) : $posts;
    }
}
