<?php

declare(strict_types=1);

namespace Windbook;

/** A request that cannot be answered as asked; the message is for the visitor. */
final class HttpError extends \RuntimeException
{
    /** @param array<string, string> $headers further headers of the answer */
    public function __construct(
        public readonly int $status,
        string $message,
        public readonly array $headers = [],
    ) {
        parent::__construct($message);
    }

    public static function notFound(): self
    {
        return new self(404, 'The wind has carried this page away, or it was never here.');
    }

    public static function methodNotAllowed(string ...$allowed): self
    {
        return new self(405, 'This address does not take that kind of request.', ['Allow' => implode(', ', $allowed)]);
    }
}
