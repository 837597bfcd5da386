<x-layout :title="'Notes of '.$user->name">
    <h1>Notes of {{ $user->name }}</h1>
    <ul id="notes">
        @forelse ($notes as $note)
            <li data-words="{{ $note->words }}">@if ($note->title !== null)<b>{{ $note->title }}</b> @endif<span class="text">{{ $note->text }}</span>
                @can('delete', $note)
                    <form action="{{ route('notes.destroy', $note) }}" method="post">@csrf @method('delete')<button>Delete</button></form>
                @endcan
            </li>
        @empty
            <li>nothing</li>
        @endforelse
    </ul>
    {{ $notes->links('pagination::bootstrap-4') }}
</x-layout>
