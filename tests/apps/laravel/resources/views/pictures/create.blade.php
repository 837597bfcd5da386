<x-layout title="Upload a picture">
    <form action="{{ route('pictures.store') }}" method="post" enctype="multipart/form-data" id="upload">
        @csrf
        <x-field name="picture" type="file"/>
        <button>Upload</button>
    </form>
</x-layout>
