"""Plays a raw request to a server and says how the server understood it.

Behind the request goes a plain one for `/sentinel` that asks for the end of the connection, in the same write. So the reader needs no patience of
its own: the connection ends when the sentinel is answered, when the server refuses, or when the server has waited long enough for bytes that never come.
"""

from __future__ import annotations

import contextlib
import re
import socket
import urllib.parse

SENTINEL = b"GET /sentinel HTTP/1.1\r\nHost: sentinel\r\nConnection: close\r\n\r\n"
KEPT, CLOSED = "kept", "closed"

#: Says what it was asked, in a header, so that answers to HEAD say it as well.
SCRIPT = """<?php
$body = file_get_contents('php://input');
$method = strlen($_SERVER['REQUEST_METHOD']) > 1000 ? strlen($_SERVER['REQUEST_METHOD']) . ' bytes' : $_SERVER['REQUEST_METHOD'];
$seen = [$method, $_SERVER['REQUEST_URI'], 'for', $_SERVER['HTTP_HOST'] ?? '-', 'body', strlen($body) > 40 ? strlen($body) . ' bytes' : $body];
if (isset($_SERVER['HTTP_X'])) { $seen[] = 'X ' . (strlen($_SERVER['HTTP_X']) > 40 ? strlen($_SERVER['HTTP_X']) . ' bytes' : $_SERVER['HTTP_X']); }
header('X-Seen: ' . rawurlencode(implode(' ', $seen)));
header('Content-Length: 1');
echo '.';
"""


def play(port: int, data: bytes) -> str:
    """`STATUS what PHP saw | STATUS … | kept` or `closed`; `kept` if the sentinel was answered, which is not listed."""
    with socket.create_connection(("127.0.0.1", port), timeout=120) as sock:
        # Who refuses early may close before it has read all.
        with contextlib.suppress(ConnectionError):
            sock.sendall(data + SENTINEL)
        received = b""
        with contextlib.suppress(ConnectionError):
            while piece := sock.recv(65536):
                received += piece
    answers = list(_answers(received))
    end = CLOSED
    if answers and answers[-1].startswith("200 GET /sentinel for sentinel"):
        answers.pop()
        end = KEPT
    return " | ".join([*answers, end])


def _answers(data: bytes):
    while data:
        head, found, rest = data.partition(b"\r\n\r\n")
        line, _, fields = head.partition(b"\r\n")
        status = re.fullmatch(rb"HTTP/1\.[01] (\d{3})( .*)?", line)
        if not found or not status:
            yield f"{len(data)} bytes that are no HTTP/1 answer"
            return
        headers = {}
        for field in fields.split(b"\r\n"):
            name, _, value = field.partition(b":")
            headers[name.strip().lower()] = value.strip()
        seen = urllib.parse.unquote(headers.get(b"x-seen", b"").decode("latin-1"), "latin-1")
        yield f"{status[1].decode()} {seen}".strip().replace("|", "\\x7c")
        if status[1].startswith(b"1"):
            data = rest
        elif b"chunked" in headers.get(b"transfer-encoding", b""):
            data = _behind_chunks(rest)
        elif b"content-length" in headers and not seen.startswith("HEAD "):
            data = rest[int(headers[b"content-length"]) :]
        elif seen.startswith("HEAD ") or rest.startswith(b"HTTP/1."):
            data = rest
        else:
            data = b""


def _behind_chunks(data: bytes) -> bytes:
    while True:
        size, _, data = data.partition(b"\r\n")
        if not size or (length := int(size, 16)) == 0:
            return data.partition(b"\r\n")[2]
        data = data[length + 2 :]


def accepted(outcome: str) -> int:
    """How many requests, the sentinel among them, were served."""
    return sum(part.startswith("2") for part in outcome.split(" | ")) + outcome.endswith(KEPT)
