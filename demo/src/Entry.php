<?php

declare(strict_types=1);

namespace Windbook;

/** One entry of the guest book, as it was written. */
final class Entry
{
    public function __construct(
        public readonly int $id,
        public readonly string $name,
        public readonly string $place,
        public readonly Beaufort $wind,
        public readonly string $message,
        public readonly \DateTimeImmutable $writtenAt,
        public readonly ?int $photoId,
        public readonly ?int $photoWidth,
        public readonly ?int $photoHeight,
    ) {
    }
}
