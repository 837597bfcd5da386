<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Blog</title>
</head>
<body>
<h1>Blog</h1>
@foreach ($posts as $post)
<article>
<h2>{{ $post['title'] }}</h2>
<p class="by">{{ $post['author'] }}, <time>{{ $post['published'] }}</time></p>
<p>{{ \Illuminate\Support\Str::limit($post['body'], 200) }}</p>
<h3>Linked from {{ count($post['linking']) }}</h3>
<ul>
@foreach ($post['linking'] as $title)
<li>{{ $title }}</li>
@endforeach
</ul>
<h3>Links to {{ count($post['linked']) }}</h3>
<ul>
@foreach ($post['linked'] as $title)
<li>{{ $title }}</li>
@endforeach
</ul>
</article>
@endforeach
</body>
</html>
