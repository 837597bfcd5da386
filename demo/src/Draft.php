<?php

declare(strict_types=1);

namespace Windbook;

/** What a visitor typed into the form: tidied, not yet known to be valid. */
final class Draft
{
    public const NAME_LENGTH = 60;
    public const PLACE_LENGTH = 80;
    public const MESSAGE_LENGTH = 1000;

    /** Characters that turn the direction of the text after them: one entry could garble the rest of its line. */
    private const BIDI = '\x{202A}-\x{202E}\x{2066}-\x{2069}';

    public function __construct(
        public readonly string $name = '',
        public readonly string $place = '',
        public readonly string $wind = '',
        public readonly string $message = '',
    ) {
    }

    public static function fromForm(Request $request): self
    {
        return new self(
            name: self::line($request->field('name')),
            place: self::line($request->field('place')),
            wind: $request->field('wind'),
            message: self::text($request->field('message')),
        );
    }

    /** Null when the field holds no force of the scale. */
    public function beaufort(): ?Beaufort
    {
        return ctype_digit($this->wind) ? Beaufort::tryFrom((int) $this->wind) : null;
    }

    /** @return array<string, string> field => what to do about it; empty when the draft may be published */
    public function errors(): array
    {
        return array_filter([
            'name' => match (true) {
                $this->name === '' => 'Please tell us your name.',
                self::length($this->name) > self::NAME_LENGTH => 'Please keep your name below ' . self::NAME_LENGTH . ' characters.',
                default => null,
            },
            'place' => self::length($this->place) > self::PLACE_LENGTH
                ? 'Please keep the place below ' . self::PLACE_LENGTH . ' characters.'
                : null,
            'wind' => $this->beaufort() === null ? 'Please choose a wind from the list.' : null,
            'message' => match (true) {
                $this->message === '' => 'Please write a line or two.',
                self::length($this->message) > self::MESSAGE_LENGTH => 'Please keep your message below ' . self::MESSAGE_LENGTH . ' characters.',
                default => null,
            },
        ]);
    }

    /** Characters as a reader counts them: an emoji of several code points is one. */
    private static function length(string $text): int
    {
        return (int) preg_match_all('/\X/u', $text);
    }

    /** Valid UTF-8 on one line, single spaces, no control characters. */
    private static function line(string $input): string
    {
        return trim((string) preg_replace('/[\s\p{Cc}' . self::BIDI . ']+/u', ' ', self::utf8($input)));
    }

    /** Valid UTF-8, lines ended by \n, no more than one empty line in a row. */
    private static function text(string $input): string
    {
        $text = (string) preg_replace('/\R/u', "\n", self::utf8($input));
        $text = (string) preg_replace('/(?!\n)[\p{Cc}' . self::BIDI . ']/u', '', $text);

        return trim((string) preg_replace('/\n{3,}/', "\n\n", $text));
    }

    /** '' for what is not UTF-8: no browser sends it, since the page is UTF-8. */
    private static function utf8(string $input): string
    {
        return preg_match('//u', $input) === 1 ? $input : '';
    }
}
