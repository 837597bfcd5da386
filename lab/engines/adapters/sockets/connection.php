<?php
/** A connection that never blocks: what has come in and is no whole request yet, what is to go out and found no room yet. */

declare(strict_types=1);

final class Connection
{
    private string $in = '';
    private string $out = '';
    private bool $closing = false;

    public function __construct(public readonly Socket $socket)
    {
        socket_set_nonblock($socket);
        socket_set_option($socket, SOL_TCP, TCP_NODELAY, 1);
    }

    public function waitsToWrite(): bool
    {
        return $this->out !== '';
    }

    /** Reads, answers and writes as far as that is possible now. False: it is over, and closed. */
    public function advance(callable $handler): bool
    {
        $bytes = @socket_read($this->socket, 65536);
        if ($bytes === '' || ($bytes === false && socket_last_error($this->socket) !== SOCKET_EAGAIN)) {
            return $this->close();
        }
        $this->in .= (string) $bytes;
        while (!$this->closing && $this->in !== '' && ($end = request_end($this->in)) !== null) {
            $request = substr($this->in, 0, $end);
            $this->in = substr($this->in, $end);
            $this->closing = !keeps_alive($request);
            $this->out .= answer_bytes($handler(request_target($request)), !$this->closing);
        }
        if ($this->out !== '') {
            $sent = @socket_write($this->socket, $this->out);
            if ($sent === false && socket_last_error($this->socket) !== SOCKET_EAGAIN) {
                return $this->close();
            }
            $this->out = substr($this->out, (int) $sent);
        }

        return $this->out !== '' || !$this->closing || $this->close();
    }

    private function close(): bool
    {
        socket_close($this->socket);

        return false;
    }
}
