"""An HTTP/1 client that sends exactly the bytes it is given and reports exactly what came back, and when.

It exists because every library repairs, reorders, merges or hides something: duplicate headers, the reason phrase,
bytes after the end of the body. It opens one connection for one request and reads to its end, so a request has to ask
for `Connection: close` (or be HTTP/1.0). Timeouts and connection failures raise OSError, an answer that is not HTTP/1
raises BadResponse.
"""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import ssl
import time
from collections.abc import Callable, Iterable


#: What `exchange()` goes by instead, when the run says so (`--over`): see lib/over.py.
carrier: Callable[..., Response | None] | None = None


class BadResponse(ValueError):
    """The bytes received are not an HTTP/1 response; the message shows them."""


@dataclasses.dataclass
class Response:
    """One answer. Times are seconds since the request was sent."""

    version: str
    status: int
    reason: str
    headers: list[tuple[str, str]]
    body: bytes
    #: How the body's end was marked: "length", "chunked", "close" or "none".
    framing: str
    #: False when the connection ended before the body did.
    complete: bool
    #: Bytes after the end of the message: always a fault of the server.
    rest: bytes
    #: Informational responses (1xx) that came before, as (status, headers).
    interim: list[tuple[int, list[tuple[str, str]]]] = dataclasses.field(default_factory=list)
    first_body_byte: float = 0.0
    complete_at: float = 0.0
    closed_at: float = 0.0

    def values(self, name: str) -> list[str]:
        """All values of a header, in order."""
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def header(self, name: str) -> str | None:
        """The only value of a header, None when absent. Raises ValueError when it came twice."""
        values = self.values(name)
        if len(values) > 1:
            raise ValueError(f"{name} came {len(values)} times: {values}")
        return values[0] if values else None


def encode(
    method: str,
    target: str | bytes,
    headers: Iterable[tuple[str, str | bytes]] = (),
    body: bytes = b"",
    version: str = "HTTP/1.1",
) -> bytes:
    """A request as bytes; adds no header of its own. str is sent as Latin-1."""

    def raw(text: str | bytes) -> bytes:
        return text if isinstance(text, bytes) else text.encode("latin-1")

    lines = [raw(method) + b" " + raw(target) + b" " + raw(version)]
    lines += [raw(name) + b": " + raw(value) for name, value in headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def chunked(chunks: Iterable[bytes]) -> bytes:
    """A body in chunked transfer coding, one chunk for each non-empty item."""
    return b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks if chunk) + b"0\r\n\r\n"


def exchange(
    address: tuple[str, int] | str,
    data: bytes,
    *,
    timeout: float = 60.0,
    abort_after: int | None = None,
    over: Callable[[socket.socket], socket.socket] | None = None,
) -> Response | None:
    """Sends `data` to (host, port) or a unix socket's path and reads to the end of the connection.

    With `abort_after` the client goes away once it has received that many bytes, and the result is None. A connection
    that the server closed without a byte is a Response with status 0. `over` makes of the connection what is spoken over, such as TLS.
    """
    if over is None and carrier is not None:
        return carrier(address, data, timeout=timeout, abort_after=abort_after)
    with contextlib.ExitStack() as stack:
        sock = stack.enter_context(socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET))
        sock.settimeout(timeout)
        sock.connect(address)
        if over is not None:
            sock = stack.enter_context(over(sock))
        begin = time.monotonic()
        # The server may answer before it has read all, and close; the answer is still to be read.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, ssl.SSLError):
            sock.sendall(data)
        received = bytearray()
        arrivals: list[tuple[float, int]] = []
        while abort_after is None or len(received) < abort_after:
            try:
                piece = sock.recv(262144)
            except (ConnectionResetError, ssl.SSLEOFError):
                break
            if not piece:
                break
            received += piece
            arrivals.append((time.monotonic() - begin, len(received)))
        closed = time.monotonic() - begin
    if abort_after is not None:
        return None
    if not received:
        return Response("", 0, "closed without an answer", [], b"", "close", False, b"", closed_at=closed)
    return _parse(bytes(received), data.split(b" ", 1)[0].decode("latin-1"), arrivals, closed)


def _head(data: bytes, start: int) -> tuple[str, int, str, list[tuple[str, str]], int]:
    end = data.find(b"\r\n\r\n", start)
    if end < 0:
        raise BadResponse(f"no complete response head: {data[start : start + 500]!r}")
    lines = data[start:end].decode("latin-1").split("\r\n")
    version, _, rest = lines[0].partition(" ")
    code, _, reason = rest.partition(" ")
    if version not in ("HTTP/1.1", "HTTP/1.0") or not code.isdigit():
        raise BadResponse(f"not a status line: {lines[0]!r}")
    headers = []
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip() or "\r" in value or "\n" in value:
            raise BadResponse(f"not a header: {line!r}")
        headers.append((name, value.strip(" \t")))
    return version, int(code), reason, headers, end + 4


def dechunk(data: bytes, at: int = 0) -> tuple[bytes, int, bool]:
    """A chunked body that begins at `at`, where it ends, and whether it is whole."""
    body = bytearray()
    while True:
        end = data.find(b"\r\n", at)
        if end < 0:
            return bytes(body), len(data), False
        try:
            size = int(data[at:end].split(b";")[0], 16)
        except ValueError:
            raise BadResponse(f"not a chunk size: {data[at : at + 40]!r}") from None
        at = end + 2
        if size == 0:
            end = data.find(b"\r\n", at)
            while end > at:  # trailer fields
                at = end + 2
                end = data.find(b"\r\n", at)
            return bytes(body), (end + 2 if end >= 0 else len(data)), end >= 0
        body += data[at : at + size]
        if len(data) < at + size + 2:
            return bytes(body), len(data), False
        if data[at + size : at + size + 2] != b"\r\n":
            raise BadResponse(f"chunk not ended: {data[at + size : at + size + 40]!r}")
        at += size + 2


def _parse(data: bytes, method: str, arrivals: list[tuple[float, int]], closed: float) -> Response:
    interim = []
    version, status, reason, headers, body_at = _head(data, 0)
    # A 1xx that nothing follows was meant as the answer: a server may be that wrong, and the test has to see it.
    while 100 <= status < 200 and data.startswith(b"HTTP/1.", body_at):
        interim.append((status, headers))
        version, status, reason, headers, body_at = _head(data, body_at)
    response = Response(version, status, reason, headers, b"", "none", True, b"", interim, closed_at=closed)
    coding = ", ".join(response.values("transfer-encoding")).lower()
    if "chunked" in coding:
        response.framing = "chunked"
    elif response.values("content-length"):
        response.framing = "length"
    end = body_at
    if method == "HEAD" or status in (204, 304):
        pass
    elif response.framing == "chunked":
        response.body, end, response.complete = dechunk(data, body_at)
    elif response.framing == "length":
        length = int(response.values("content-length")[0])
        response.body = data[body_at : body_at + length]
        end = body_at + len(response.body)
        response.complete = len(response.body) == length
    else:
        response.framing = "close"
        response.body, end = data[body_at:], len(data)
    response.rest = data[end:]
    response.first_body_byte = next((when for when, count in arrivals if count > body_at), closed)
    response.complete_at = next((when for when, count in arrivals if count >= end), closed)
    if response.framing == "close":
        response.complete_at = closed
    return response
