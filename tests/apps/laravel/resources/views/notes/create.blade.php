<x-layout title="Write a note">
    <form action="{{ route('notes.store') }}" method="post" id="write">
        @csrf
        <x-field name="title"/>
        <x-field name="text"/>
        <button>Keep</button>
    </form>
</x-layout>
