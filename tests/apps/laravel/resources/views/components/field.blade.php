@props(['name', 'type' => 'text'])
<label>{{ $name }} <input type="{{ $type }}" name="{{ $name }}" value="{{ $type === 'password' ? '' : old($name) }}"></label>
@error($name)<p class="error" id="{{ $name }}-error">{{ $message }}</p>@enderror
