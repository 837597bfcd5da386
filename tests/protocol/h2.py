"""A client of HTTP/2 that does as it is told, also what no client should: bare frames, with the header compression of python-hpack."""

from __future__ import annotations

import socket
import ssl
import struct
import time

import hpack

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS, ACK = 1, 4, 1


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


class Raw:
    """Bare frames on a connection; what comes is gathered as (kind, flags, stream, payload)."""

    def __init__(self, sock: socket.socket, settings: bytes = b"") -> None:
        self.sock = sock
        self.encoder, self.decoder = hpack.Encoder(), hpack.Decoder()
        self.buffer = b""
        self.closed = False
        self.ended: dict[int, str] = {}
        sock.settimeout(60)
        self.send(PREFACE + frame(SETTINGS, 0, 0, settings))

    def send(self, data: bytes) -> bool:
        try:
            self.sock.sendall(data)
            return True
        except OSError:
            self.closed = True
            return False

    def head(self, path: str = "/ok.php?x", *more: tuple[str, str], authority: str | None = "a.example", method: str = "GET") -> bytes:
        pseudo = [(":method", method), (":scheme", "https"), (":path", path)]
        if authority is not None:
            pseudo.append((":authority", authority))
        return self.encoder.encode([*pseudo, *more], huffman=False)

    def request(self, stream: int, *args, end: bool = True, **named) -> bool:
        flags = END_HEADERS | (END_STREAM if end else 0)
        return self.send(frame(HEADERS, flags, stream, self.head(*args, **named)))

    def receive(self) -> tuple[int, int, int, bytes] | None:
        """The next frame; None when the connection is over."""
        try:
            while len(self.buffer) < 9 or len(self.buffer) < 9 + int.from_bytes(self.buffer[:3], "big"):
                more = self.sock.recv(65536)
                if not more:
                    self.closed = True
                    return None
                self.buffer += more
        except (ConnectionError, ssl.SSLError):
            # Without a word, as TLS sees it.
            self.closed = True
            return None
        size = int.from_bytes(self.buffer[:3], "big")
        kind, flags = self.buffer[3], self.buffer[4]
        stream = int.from_bytes(self.buffer[5:9], "big") & 0x7FFFFFFF
        payload, self.buffer = self.buffer[9 : 9 + size], self.buffer[9 + size :]
        return kind, flags, stream, payload

    def until(self, wanted, seconds: float = 60) -> tuple[int, int, int, bytes] | None:
        """The first frame for which `wanted(kind, flags, stream, payload)` holds; None when the connection is over before."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            got = self.receive()
            if got is None or wanted(*got):
                return got
        raise AssertionError("it did not come")

    def status(self, stream: int) -> str | None:
        """The status of the answer on a stream; "reset" for one that was reset; None when the connection is over.

        What comes on other streams meanwhile is kept for those who ask later.
        """
        while True:
            if stream in self.ended:
                return self.ended.pop(stream)
            got = self.until(lambda kind, *_: kind in (HEADERS, RST_STREAM, GOAWAY))
            if got is None or got[0] == GOAWAY:
                return None
            if got[0] == HEADERS:
                self.ended[got[2]] = dict(self.decoder.decode(got[3]))[":status"]
            else:
                self.ended[got[2]] = "reset"

    def error(self) -> int | None:
        """Why the server ended the connection: the code of its GOAWAY; None when there was none."""
        try:
            got = self.until(lambda kind, *_: kind == GOAWAY)
        except (AssertionError, TimeoutError):
            raise AssertionError("the connection goes on") from None
        return None if got is None else int.from_bytes(got[3][4:8], "big")
