@props(['title' => 'Pinboard'])
<!DOCTYPE html>
<html lang="{{ app()->getLocale() }}">
<head>
    <meta charset="utf-8">
    <title>{{ $title }}</title>
    <link rel="stylesheet" href="{{ asset('style.css') }}">
</head>
<body>
<header>
    @auth
        <span id="user">{{ auth()->user()->name }}</span>
        <form action="{{ route('logout') }}" method="post" id="logout">@csrf<button>Log out</button></form>
    @else
        <a id="login" href="{{ route('login') }}">Log in</a>
    @endauth
</header>
@if (session('status'))
    <p class="status">{{ session('status') }}</p>
@endif
{{ $slot }}
</body>
</html>
