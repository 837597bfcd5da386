"""What the suite's requests go over: plain HTTP/1.1, TLS, or HTTP/2 over TLS (`--over`, see tests/README.md).

The servers of such a run speak TLS, if their configuration says nothing of addresses; `of_this_run` has their ports. `install()` has all that
speaks to these do as the run says: `client.exchange()`, `requests`, and, over TLS, sockets. Bytes of HTTP/1 on a socket have no form in HTTP/2.

`exchange()` is `client.exchange()` over each of them: it takes the bytes of a request of HTTP/1 and gives back a Response. Over HTTP/2 it says
the same in frames; a request that cannot be said so raises NoForm, with the reason. Reason phrases are then the registered ones, for all servers.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import os
import pathlib
import re
import shutil
import socket
import ssl
import struct
import tempfile
import time
import urllib.parse
from collections.abc import Callable

import hpack
import pytest
import requests
import requests.adapters
import urllib3._collections

from . import client
from .client import Response

PLAIN, TLS, H2 = "plain", "tls", "h2"
#: Set once, before anything is collected.
protocol = PLAIN

TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
#: What HTTP/2 has no place for (RFC 9113, 8.2.2); the framing has its own ways.
OF_A_CONNECTION = ("connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "host")
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1
LARGEST_FRAME = 16384


#: Ports on which servers of this run speak TLS.
of_this_run: set[int] = set()


class NoForm(pytest.skip.Exception):
    """This request cannot be made over HTTP/2; the message says why. A test that does not mind it is skipped."""


_directory: pathlib.Path | None = None
_connect = socket.create_connection


def certificate() -> tuple[pathlib.Path, pathlib.Path]:
    """The certificate of all servers of this run, and its key, where every user may enter."""
    # Not above: it imports the servers, which import this.
    from .tls import self_signed

    global _directory
    if _directory is None:
        _directory = pathlib.Path(tempfile.mkdtemp(prefix="hayate-over-"))
        _directory.chmod(0o755)
        _, key = self_signed(_directory, "server", ["parity.test", "localhost", "a"], addresses=["127.0.0.1"])
        key.chmod(0o644)
    return _directory / "server.pem", _directory / "server.key"


def remove_certificate() -> None:
    if _directory is not None:
        shutil.rmtree(_directory, ignore_errors=True)


def wrap(sock: socket.socket, alpn: str | None = None) -> ssl.SSLSocket:
    """TLS on a connection; whose certificate it is, is no matter here."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if alpn:
        context.set_alpn_protocols([alpn])
    wrapped = context.wrap_socket(sock, server_hostname="parity.test")
    if alpn and wrapped.selected_alpn_protocol() != alpn:
        raise client.BadResponse(f"the server did not agree on {alpn}")
    return wrapped


def connect(address: tuple[str, int], *, receive_buffer: int = 0, timeout: float = 60.0) -> socket.socket:
    """A connection with a small buffer for what comes, which has to be chosen before it is made; else `socket.create_connection()` will do."""
    if protocol == H2 and address[1] in of_this_run:
        raise NoForm("the test writes bytes of HTTP/1")
    sock = socket.socket()
    if receive_buffer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.settimeout(timeout)
    sock.connect(address)
    return wrap(sock) if protocol == TLS and address[1] in of_this_run else sock


def frames(address: tuple[str, int], *, source_address: tuple[str, int] | None = None) -> socket.socket:
    """A connection on which a test writes frames of HTTP/2: by prior knowledge, or over TLS if the run is."""
    sock = _connect(address, timeout=60, source_address=source_address)
    return wrap(sock, "h2") if address[1] in of_this_run else sock


def curl_http2() -> str:
    """What has curl speak HTTP/2 to a server of this run that takes it by prior knowledge."""
    return "--http2-prior-knowledge" if protocol == PLAIN else "--http2"


def exchange(address: tuple[str, int], data: bytes, *, timeout: float = 60.0, abort_after: int | None = None) -> Response | None:
    """As `client.exchange()`, over what the run says."""
    if protocol == H2:
        return _Http2(address, timeout).exchange(*as_http2(data), abort_after)
    over: Callable[[socket.socket], socket.socket] | None = wrap if protocol == TLS else None
    return client.exchange(address, data, timeout=timeout, abort_after=abort_after, over=over)


def _carry(address: tuple[str, int] | str, data: bytes, *, timeout: float = 20.0, abort_after: int | None = None) -> Response | None:
    if isinstance(address, str) or address[1] not in of_this_run:
        return client.exchange(address, data, timeout=timeout, abort_after=abort_after, over=lambda sock: sock)
    return exchange(address, data, timeout=timeout, abort_after=abort_after)


def is_refused(answer: Response | int) -> bool:
    """Whether a request was refused as malformed: 400, or over HTTP/2 a stream that was reset."""
    status = answer if isinstance(answer, int) else answer.status
    return status == 400 or (protocol == H2 and status == 0)


def install() -> None:
    """Has requests to the servers of this run go as the run says, whoever makes them."""
    if protocol == PLAIN:
        return
    client.carrier = _carry

    def connected(address, *arguments, **named):
        sock = _connect(address, *arguments, **named)
        if address[1] not in of_this_run:
            return sock
        if protocol == H2:
            sock.close()
            raise NoForm("the test writes bytes of HTTP/1")
        return wrap(sock)

    socket.create_connection = connected
    # They have lists of authorities of their own.
    os.environ["REQUESTS_CA_BUNDLE"] = os.environ["CURL_CA_BUNDLE"] = str(certificate()[0])
    if protocol == H2:
        get_adapter = requests.Session.get_adapter
        http2 = _Requests()
        requests.Session.get_adapter = lambda session, url, **more: (  # type: ignore[method-assign]
            http2 if urllib.parse.urlsplit(url).port in of_this_run else get_adapter(session, url, **more)
        )


class _Requests(requests.adapters.BaseAdapter):
    """requests over HTTP/2; an answer is read as a whole."""

    def send(self, request, stream=False, timeout=None, verify=True, cert=None, proxies=None) -> requests.Response:
        if stream:
            raise NoForm("the test reads an answer while it comes")
        url = urllib.parse.urlsplit(request.url)
        body = request.body or b""
        if not isinstance(body, (bytes, str)):
            body = b"".join(body)
        body = body.encode() if isinstance(body, str) else body
        fields = [(name, value) for name, value in request.headers.items() if name.lower() not in ("connection", "transfer-encoding", "host")]
        host = request.headers.get("Host") or url.netloc
        data = client.encode(request.method, request.path_url, [("Host", host), *fields], body)
        seconds = timeout[-1] if isinstance(timeout, tuple) else timeout
        got = exchange((url.hostname, url.port), data, timeout=seconds or 60)
        if got is None or not got.complete:
            raise requests.ConnectionError(f"the answer is not whole: {got}", request=request)
        answer = requests.Response()
        answer.status_code, answer.reason, answer.url, answer.request = got.status, got.reason, request.url, request
        # It knows from the method whether there is a body: since urllib3 2 one that is shorter than its length is an error.
        raw = urllib3.HTTPResponse(
            io.BytesIO(got.body), headers=urllib3._collections.HTTPHeaderDict(got.headers), status=got.status, preload_content=False, request_method=request.method
        )  # fmt: skip
        answer.headers = requests.structures.CaseInsensitiveDict(raw.headers)
        answer.raw, answer.encoding = raw, requests.utils.get_encoding_from_headers(answer.headers)
        return answer

    def close(self) -> None:
        pass


def as_http2(data: bytes) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """The fields and the body of a request of HTTP/1."""
    head, end, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if not end or len(words) != 3 or words[2] != "HTTP/1.1":
        raise NoForm("it is no whole request of HTTP/1.1")
    method, target, _ = words
    if not target.startswith("/") or re.search(r"[\x00-\x20\x7f]", target):
        raise NoForm("its target is no path")
    fields: list[tuple[str, str]] = []
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not TOKEN.fullmatch(name) or re.search(r"[\x00-\x08\x0a-\x1f\x7f]", value):
            raise NoForm("it has a line that is no header")
        fields.append((name.lower(), value.strip(" \t")))
    hosts = [value for name, value in fields if name == "host"]
    if len(hosts) != 1 or not hosts[0]:
        raise NoForm("it has no Host, or several")
    if any(name == "expect" for name, _ in fields):
        raise NoForm("Expect is about when bytes are sent")
    if any(name == "transfer-encoding" for name, _ in fields):
        body, _, whole = client.dechunk(body)
        if not whole:
            raise NoForm("its chunks are not whole")
    lengths = [value for name, value in fields if name == "content-length"]
    if lengths and lengths != [str(len(body))]:
        raise NoForm("its length is not that of its body")
    pseudo = [(":method", method), (":scheme", "https"), (":authority", hosts[0]), (":path", target)]
    others = [(name, value) for name, value in fields if name not in OF_A_CONNECTION]
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in pseudo + others], body


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


class _Http2:
    """One connection with one request on it."""

    def __init__(self, address: tuple[str, int], timeout: float) -> None:
        self.sock = wrap(_connect(address, timeout=timeout), "h2")
        self.buffer = b""
        self.begun = time.monotonic()
        #: What the server lets us send, on the stream and in all.
        self.windows = {1: 65535, 0: 65535}
        self.headers: list[tuple[str, str]] = []
        self.interim: list[tuple[int, list[tuple[str, str]]]] = []
        self.block = b""
        self.status = 0
        self.body = bytearray()
        self.first = self.last = 0.0
        self.ended = self.complete = False
        self.decoder = hpack.Decoder()

    def exchange(self, fields: list[tuple[bytes, bytes]], body: bytes, abort_after: int | None) -> Response | None:
        with self.sock:
            # As much as there can be, and no need to ask for more.
            settings = struct.pack(">HI", 4, 2**31 - 1) + struct.pack(">HI", 2, 0)
            start = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(SETTINGS, 0, 0, settings)
            start += _frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 2**31 - 1 - 65535))
            block = hpack.Encoder().encode(fields, huffman=False)
            pieces = [block[i : i + LARGEST_FRAME] for i in range(0, len(block), LARGEST_FRAME)]
            for number, piece in enumerate(pieces):
                flags = END_HEADERS if number == len(pieces) - 1 else 0
                kind = HEADERS if number == 0 else CONTINUATION
                start += _frame(kind, flags | (0 if body or number else END_STREAM), 1, piece)
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                self.sock.sendall(start)
                # Not the bytes themselves: each cut would copy what is left, of a body of a gigabyte.
                left = memoryview(body)
                while left and not self.ended:
                    size = min(LARGEST_FRAME, len(left), *self.windows.values())
                    if size <= 0:
                        self.receive()
                        continue
                    piece, left = left[:size], left[size:]
                    self.sock.sendall(_frame(DATA, 0 if left else END_STREAM, 1, bytes(piece)))
                    self.windows = {stream: window - size for stream, window in self.windows.items()}
            while not self.ended:
                if abort_after is not None and len(self.body) >= abort_after:
                    return None
                self.receive()
        if abort_after is not None:
            return None
        closed = time.monotonic() - self.begun
        framing = "length" if any(name == "content-length" for name, _ in self.headers) else "stream"
        return Response(
            "HTTP/2", self.status, http.client.responses.get(self.status, ""), self.headers, bytes(self.body), framing, self.complete, b"", self.interim, self.first or closed, self.last or closed, closed
        )  # fmt: skip

    def receive(self) -> None:
        """Takes the next frame; the end of the connection ends the exchange."""
        try:
            while len(self.buffer) < 9 or len(self.buffer) < 9 + int.from_bytes(self.buffer[:3], "big"):
                more = self.sock.recv(262144)
                if not more:
                    self.ended = True
                    return
                self.buffer += more
        except (ConnectionError, ssl.SSLError):
            self.ended = True
            return
        size = int.from_bytes(self.buffer[:3], "big")
        kind, flags, stream = self.buffer[3], self.buffer[4], int.from_bytes(self.buffer[5:9], "big") & 0x7FFFFFFF
        payload, self.buffer = self.buffer[9 : 9 + size], self.buffer[9 + size :]
        now = time.monotonic() - self.begun
        if kind == SETTINGS and not flags & ACK:
            for at in range(0, size, 6):
                key, value = struct.unpack_from(">HI", payload, at)
                if key == 4:
                    self.windows[1] += value - 65535
            self.sock.sendall(_frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self.sock.sendall(_frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE and stream in self.windows:
            self.windows[stream] += int.from_bytes(payload, "big")
        elif kind == DATA and stream == 1:
            if payload and not self.body:
                self.first = now
            self.body += payload
        elif kind in (HEADERS, CONTINUATION) and stream == 1:
            self.block += payload
            if flags & END_HEADERS:
                self._head()
        elif kind == RST_STREAM and stream == 1:
            # NO_ERROR behind an answer only says that the rest of the body is not wanted.
            self.ended = True
        if kind in (DATA, HEADERS) and stream == 1 and flags & END_STREAM:
            self.ended = self.complete = True
            self.last = now

    def _head(self) -> None:
        block, self.block = self.block, b""
        fields = self.decoder.decode(block, raw=True)
        named = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in fields]
        status = dict(named).get(":status")
        headers = [(name, value) for name, value in named if not name.startswith(":")]
        if status is None:
            return  # trailers
        if 100 <= int(status) < 200:
            self.interim.append((int(status), headers))
        else:
            self.status, self.headers = int(status), headers
