<?php

declare(strict_types=1);

namespace App\Models;

use App\Setting;
use Illuminate\Database\Eloquent\Model;
use Illuminate\Database\Eloquent\Relations\BelongsTo;
use Illuminate\Database\Eloquent\Relations\BelongsToMany;

/** A post: id, author_id, title, body, published_at. Posts link to posts. */
final class Post extends Model
{
    public $timestamps = false;

    public function __construct(array $attributes = [])
    {
        parent::__construct($attributes);
        if (Setting::on('BLOG_CASTS')) {
            $this->casts = ['published_at' => 'immutable_datetime'];
        }
    }

    public function author(): BelongsTo
    {
        return $this->belongsTo(Author::class);
    }

    /** The posts that link to this one. */
    public function linking(): BelongsToMany
    {
        return $this->belongsToMany(self::class, 'links', 'to_id', 'from_id')->orderBy('posts.id');
    }

    /** The posts that this one links to. */
    public function linked(): BelongsToMany
    {
        return $this->belongsToMany(self::class, 'links', 'from_id', 'to_id')->orderBy('posts.id');
    }
}
