<x-layout>
    <h1>Account of {{ auth()->user()->name }}</h1>
</x-layout>
