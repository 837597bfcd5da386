<?php
/**
 * As much HTTP/1.1 as the teaching servers need: where a request ends, what it asks for, and the answer's bytes.
 *
 * Promises nothing about hostile clients: no limits, no chunked bodies. It must not be used for more than measuring.
 */

/** The end of the first request in the bytes read so far, or null while it is incomplete. A body is passed over. */
function request_end(string $bytes): ?int
{
    $end = strpos($bytes, "\r\n\r\n");
    if ($end === false) {
        return null;
    }
    $length = preg_match('/^content-length:\s*(\d+)/mi', substr($bytes, 0, $end), $match) ? (int) $match[1] : 0;

    return strlen($bytes) >= $end + 4 + $length ? $end + 4 + $length : null;
}

/** What a request asks for: path and query. */
function request_target(string $request): string
{
    return explode(' ', $request, 3)[1] ?? '/';
}

/** Whether the client wants the connection kept: HTTP/1.1 without `Connection: close`. */
function keeps_alive(string $request): bool
{
    return str_contains(strtok($request, "\r"), 'HTTP/1.1') && stripos($request, "\r\nconnection: close") === false;
}

/** @param array{int, array<string, string>, string} $answer of a workload's handler */
function answer_bytes(array $answer, bool $keep): string
{
    [$status, $headers, $body] = $answer;
    $head = "HTTP/1.1 $status X\r\nContent-Length: ".strlen($body)."\r\nConnection: ".($keep ? 'keep-alive' : 'close')."\r\n";
    foreach ($headers as $name => $value) {
        $head .= "$name: $value\r\n";
    }

    return "$head\r\n$body";
}
