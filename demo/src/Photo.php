<?php

declare(strict_types=1);

namespace Windbook;

/** A picture that came with an entry. It is kept in the database, so no uploaded file ever lies where a server could run it. */
final class Photo
{
    public const MAX_BYTES = 2 * 2 ** 20;
    public const TYPES = ['image/jpeg', 'image/png', 'image/webp'];

    /** @param string $bytes the file, unchanged */
    public function __construct(
        public readonly string $type,
        public readonly int $width,
        public readonly int $height,
        public readonly string $bytes,
    ) {
    }

    /**
     * @param array{tmp_name: string, error: int, size: int} $file an entry of $_FILES
     * @throws \DomainException when it is no picture we take; the message is for the visitor
     */
    public static function fromUpload(array $file): self
    {
        if ($file['error'] === UPLOAD_ERR_INI_SIZE || $file['error'] === UPLOAD_ERR_FORM_SIZE || $file['size'] > self::MAX_BYTES) {
            throw new \DomainException('Please choose a picture of at most 2 MB.');
        }
        if ($file['error'] !== UPLOAD_ERR_OK || !is_uploaded_file($file['tmp_name'])) {
            throw new \DomainException('The picture did not arrive whole. Please choose it again.');
        }
        $size = @getimagesize($file['tmp_name']);
        $bytes = file_get_contents($file['tmp_name']);
        if ($size === false || $bytes === false || !in_array($size['mime'], self::TYPES, true) || $size[0] < 1 || $size[1] < 1) {
            throw new \DomainException('Please choose a JPEG, PNG or WebP picture.');
        }

        return new self($size['mime'], $size[0], $size[1], $bytes);
    }
}
