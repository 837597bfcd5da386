"""Large files on plain connections, which the kernel sends by itself: every byte in its place, whatever the client's pace, the range, and
what becomes of the file meanwhile."""

from __future__ import annotations

import os
import pathlib
import random
import socket
import time
from collections.abc import Iterator

import pytest

from lib import over
from lib.servers import Hayate

SIZE = (3 << 20) + 4321


@pytest.fixture(scope="module")
def content() -> bytes:
    return random.Random(11).randbytes(SIZE)


@pytest.fixture(scope="module")
def server(hayate_command, tmp_path_factory, content) -> Iterator[Hayate]:
    root: pathlib.Path = tmp_path_factory.mktemp("sent") / "site"
    root.mkdir()
    root.parent.chmod(0o755)
    (root / "file.bin").write_bytes(content)
    with Hayate(config=f'[[app]]\nroot = "{root}"\nphp = "off"\n') as hayate:
        hayate.root = root
        yield hayate


def connect(server: Hayate) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=60)


def ask(sock: socket.socket, name: str = "file.bin", more: str = "") -> None:
    sock.sendall(f"GET /{name} HTTP/1.1\r\nHost: a\r\n{more}\r\n".encode())


def answer(sock: socket.socket, pause: float = 0.0) -> tuple[bytes, bytes]:
    """Head and body of one answer; the body is what came where the connection was cut."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = sock.recv(65536)
        assert piece
        data += piece
    head, _, rest = data.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    body = bytearray(rest)
    while len(body) < length:
        piece = sock.recv(min(length - len(body), 200_000))
        if not piece:
            break
        body += piece
        time.sleep(pause)
    return head, bytes(body)


def test_answers_follow_each_other(server, content) -> None:
    with connect(server) as sock:
        # Twice at once, and a small one behind: what is in memory and what is not known to be so yet.
        for _ in range(2):
            ask(sock)
        ask(sock, more="Range: bytes=-5\r\n")
        for want in (content, content, content[-5:]):
            _, body = answer(sock)
            assert body == want


SPANS = [(0, SIZE - 1), (1, SIZE - 2), (262143, 2 * 262144), (262144, 1048575), (700_001, SIZE - 1), (SIZE - 70_000, SIZE - 1)]


@pytest.mark.parametrize("span", SPANS)
def test_ranges_over_many_stretches(server, content, span) -> None:
    first, last = span
    with connect(server) as sock:
        for _ in range(2):
            ask(sock, more=f"Range: bytes={first}-{last}\r\n")
            head, body = answer(sock)
            assert b" 206 " in head and body == content[first : last + 1]


def test_a_slow_client_over_several_seconds(server, content) -> None:
    with over.connect(("127.0.0.1", server.port), receive_buffer=16384) as sock:
        ask(sock)
        _, body = answer(sock, pause=0.02)
        assert body == content
        ask(sock, more="Range: bytes=0-9\r\n")
        assert answer(sock)[1] == content[:10]


def test_a_file_that_becomes_shorter_is_seen_as_cut(server, content) -> None:
    path = server.root / "shrinks.bin"
    path.write_bytes(content * 8)
    with connect(server) as sock:
        ask(sock, "shrinks.bin")
        while len(sock.recv(1)) < 1:
            pass
        os.truncate(path, 100_000)
        data = b""
        while piece := sock.recv(1 << 20):
            data += piece
        assert len(data) < 8 * SIZE
    with connect(server) as sock:
        ask(sock)
        assert answer(sock)[1] == content
