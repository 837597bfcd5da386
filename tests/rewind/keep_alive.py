"""A small HTTP/1.1 client that keeps its connection, for tests that make very many requests."""

from __future__ import annotations

import socket


class KeepAlive:
    """GET requests, one after the other, on one connection; answers need a Content-Length."""

    def __init__(self, port: int, timeout: float = 60) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""

    def __enter__(self) -> KeepAlive:
        return self

    def __exit__(self, *exc: object) -> None:
        self._socket.close()

    def _read(self) -> None:
        piece = self._socket.recv(65536)
        if not piece:
            raise ConnectionError("the server closed the connection within an answer")
        self._rest += piece

    def get(self, target: str) -> tuple[int, bytes]:
        """Status and body. Raises OSError when the connection fails."""
        self._socket.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        while b"\r\n\r\n" not in self._rest:
            self._read()
        head, _, self._rest = self._rest.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"\r\ncontent-length:")[2].split(b"\r\n")[0])
        while len(self._rest) < length:
            self._read()
        body, self._rest = self._rest[:length], self._rest[length:]
        return int(head.split()[1]), body
