<?php
/**
 * RoadRunner's worker protocol on stdin and stdout: goridge frames that carry HTTP messages in Protocol Buffers' encoding.
 *
 * A frame is a head of 12 bytes (version and length of the head in words, flags, length of the payload, CRC-32 of those, two bytes
 * for streams and stopping), options of 4 bytes each, and a payload. All numbers are little-endian. With one option the payload is
 * a context of that length, then a body.
 *
 * Promises whole requests and answers; no streaming, no uploads. stdout belongs to the protocol: nothing else may be written to it.
 */

declare(strict_types=1);

final class Goridge
{
    private const VERSION = 1;
    private const HEAD_WORDS = 3;
    private const FLAG_CONTROL = 0x01;
    private const FLAG_ERROR = 0x40;
    private const FLAG_PROTOBUF = 0x80;
    private const STREAM_STOP = 0x02;
    /** Fields of the request and of the answer, by their numbers in RoadRunner's http.proto. */
    private const REQUEST_URI = 4;
    private const REQUEST_QUERY = 7;
    private const RESPONSE_STATUS = 1;
    private const RESPONSE_HEADERS = 2;

    /** Path and query of the next request, or null when the server wants this worker to end. */
    public function next(): ?string
    {
        while (true) {
            $head = $this->read(4 * self::HEAD_WORDS);
            if ($head === null) {
                return null;
            }
            ['words' => $words, 'flags' => $flags, 'length' => $length, 'stream' => $stream] =
                unpack('Cwords/Cflags/Vlength/Vsum/Cstream', $head);
            $options = $this->read(4 * (($words & 0x0F) - self::HEAD_WORDS));
            $payload = $this->read($length);
            if ($options === null || $payload === null || $stream & self::STREAM_STOP) {
                return null;
            }
            if ($flags & self::FLAG_CONTROL) {
                $command = json_decode($payload, true);
                if (!empty($command['stop'])) {
                    return null;
                }
                if (isset($command['pid'])) {
                    $this->write(self::FLAG_CONTROL, json_encode(['pid' => getmypid()]), null);
                }
                continue;
            }
            $fields = $this->strings(substr($payload, 0, unpack('V', $options)[1]));
            $query = $fields[self::REQUEST_QUERY] ?? '';

            return (parse_url($fields[self::REQUEST_URI], PHP_URL_PATH) ?: '/').($query === '' ? '' : "?$query");
        }
    }

    /** @param array<string, string> $headers */
    public function answer(int $status, array $headers, string $body): void
    {
        $context = $this->number(self::RESPONSE_STATUS, $status);
        foreach ($headers as $name => $value) {
            // An entry of a map is a message of a key and a value; the value here a message with a list.
            $context .= $this->bytes(self::RESPONSE_HEADERS, $this->bytes(1, $name).$this->bytes(2, $this->bytes(1, $value)));
        }
        $this->write(self::FLAG_PROTOBUF, $context.$body, strlen($context));
    }

    public function error(string $message): void
    {
        $this->write(self::FLAG_ERROR, $message, null);
    }

    private function write(int $flags, string $payload, ?int $context): void
    {
        $words = self::HEAD_WORDS + ($context === null ? 0 : 1);
        $head = pack('CCV', self::VERSION << 4 | $words, $flags, strlen($payload));
        $frame = $head.pack('Vv', crc32($head), 0).($context === null ? '' : pack('V', $context)).$payload;
        for ($sent = 0; $sent < strlen($frame); $sent += $written) {
            $written = fwrite(STDOUT, $sent === 0 ? $frame : substr($frame, $sent));
            if (!$written) {
                exit(1); // the server is gone
            }
        }
    }

    private function read(int $length): ?string
    {
        if ($length === 0) {
            return '';
        }
        $bytes = stream_get_contents(STDIN, $length);

        return $bytes !== false && strlen($bytes) === $length ? $bytes : null;
    }

    /** @return array<int, string> the fields of a message that are strings or messages, by number; the last one of each */
    private function strings(string $message): array
    {
        $fields = [];
        $at = 0;
        while ($at < strlen($message)) {
            $key = $this->varint($message, $at);
            $value = $this->varint($message, $at); // a length, or the number itself: no other kinds occur
            if (($key & 7) === 2) {
                $fields[$key >> 3] = substr($message, $at, $value);
                $at += $value;
            }
        }

        return $fields;
    }

    private function varint(string $message, int &$at): int
    {
        $value = 0;
        for ($shift = 0; ; $shift += 7) {
            $byte = ord($message[$at++]);
            $value |= ($byte & 0x7F) << $shift;
            if ($byte < 0x80) {
                return $value;
            }
        }
    }

    private function bytes(int $field, string $value): string
    {
        return $this->encoded($field << 3 | 2).$this->encoded(strlen($value)).$value;
    }

    private function number(int $field, int $value): string
    {
        return $this->encoded($field << 3).$this->encoded($value);
    }

    private function encoded(int $value): string
    {
        $bytes = '';
        for (; $value >= 0x80; $value >>= 7) {
            $bytes .= chr($value & 0x7F | 0x80);
        }

        return $bytes.chr($value);
    }
}
