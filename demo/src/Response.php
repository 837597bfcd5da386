<?php

declare(strict_types=1);

namespace Windbook;

/** One HTTP answer, complete before its first byte is sent. */
final class Response
{
    /** @param array<string, string> $headers */
    public function __construct(
        public readonly string $body = '',
        public readonly int $status = 200,
        public readonly array $headers = ['Content-Type' => 'text/html; charset=utf-8', 'Cache-Control' => 'no-store'],
    ) {
    }

    /** After a form: the browser fetches $location with GET, so that a reload does not send the form again. */
    public static function seeOther(string $location): self
    {
        return new self('', 303, ['Location' => $location, 'Cache-Control' => 'no-store']);
    }

    /** @param array<string, string> $headers added to, or in place of, those already there */
    public function with(array $headers): self
    {
        return new self($this->body, $this->status, $headers + $this->headers);
    }

    public function send(): void
    {
        http_response_code($this->status);
        foreach ($this->headers as $name => $value) {
            header("$name: $value");
        }
        echo $this->body;
    }
}
