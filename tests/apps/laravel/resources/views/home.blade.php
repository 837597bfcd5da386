<x-layout>
    <h1>{{ config('app.name') }}</h1>
    <p>Visits: <span id="visits">{{ $visits }}</span></p>
    <ul id="people">
        @foreach ($people as $person)
            <li><a href="{{ route('notes.index', $person->name) }}">{{ $person->name }}</a>: {{ trans_choice('{1} one note|[0,*] :count notes', $person->notes_count) }}</li>
        @endforeach
    </ul>
</x-layout>
