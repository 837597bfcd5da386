<?php

declare(strict_types=1);

namespace App\Http\Controllers;

use App\Blog;
use Illuminate\Contracts\View\View;

final class BlogController
{
    public function list(Blog $blog): View
    {
        return view('blog', ['posts' => $blog->list()]);
    }
}
