<x-layout title="Log in">
    <form action="{{ route('login') }}" method="post" id="log-in">
        @csrf
        <x-field name="email"/>
        <x-field name="password" type="password"/>
        <label><input type="checkbox" name="remember" value="1"> Remember me</label>
        <button>Log in</button>
    </form>
</x-layout>
