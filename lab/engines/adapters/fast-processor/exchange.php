<?php
/**
 * What index.php and the handlers say to each other over a unix socket, a connection for each request: the target, then the answer.
 * Each is a length (4 bytes, network order) and PHP's serialised form of strings, numbers and arrays.
 */

declare(strict_types=1);

/** @param resource $stream */
function send($stream, mixed $value): bool
{
    $bytes = serialize($value);
    $bytes = pack('N', strlen($bytes)).$bytes;

    return fwrite($stream, $bytes) === strlen($bytes);
}

/**
 * Null if the other side went away.
 *
 * @param resource $stream
 */
function receive($stream): mixed
{
    $head = stream_get_contents($stream, 4);
    if ($head === false || strlen($head) < 4) {
        return null;
    }
    $length = unpack('N', $head)[1];
    $bytes = stream_get_contents($stream, $length);

    return $bytes !== false && strlen($bytes) === $length ? unserialize($bytes, ['allowed_classes' => false]) : null;
}
