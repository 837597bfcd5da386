"""A client of HTTP/3 on aioquic, without its event loop: one socket, one connection, and what no client should do as well."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("aioquic", reason="aioquic is not installed (scripts/setup --test)")

from aioquic.h3.connection import H3_ALPN, H3Connection, HeadersState
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import ConnectionTerminated, HandshakeCompleted, QuicEvent, StreamReset

if TYPE_CHECKING:
    import pathlib

#: Long, for a loaded machine; what is waited for comes in a moment.
PATIENCE = 60


def prefixed(first: int, bits: int, number: int) -> bytes:
    """An integer of QPACK with a prefix of so many bits (RFC 7541, 5.1)."""
    most = (1 << bits) - 1
    if number < most:
        return bytes([first | number])
    made = [first | most]
    number -= most
    while number >= 128:
        made.append(number % 128 + 128)
        number //= 128
    return bytes([*made, number])


def literally(fields: Iterable[tuple[str, str]]) -> bytes:
    """A HEADERS frame with fields of any size, literally; aioquic's encoder knows bounds."""
    block = b"\0\0"
    for name, value in fields:
        text = value.encode("latin-1")
        block += prefixed(0x20, 3, len(name)) + name.encode() + prefixed(0, 7, len(text)) + text
    return b"\x01" + (len(block) | 0x80000000).to_bytes(4) + block


def frame(kind: int, payload: bytes = b"", length: int | None = None) -> bytes:
    """A frame, which may say a length that is not its own."""
    return bytes([kind]) + ((len(payload) if length is None else length) | 0x80000000).to_bytes(4) + payload


class Quic(QuicConnection):
    """aioquic asserts that a stream is reset once. But STOP_SENDING is sent again when its acknowledgement is late, and may come to a stream
    that the client has reset by itself."""

    def _handle_stop_sending_frame(self, context, frame_type, buf) -> None:
        begin = buf.tell()
        stream = self._streams.get(buf.pull_uint_var())
        if stream is not None and stream.sender._reset_error_code is not None:
            buf.pull_uint_var()
            return
        buf.seek(begin)
        super()._handle_stop_sending_frame(context, frame_type, buf)


class Lenient(H3Connection):
    """aioquic takes an answer to HEAD for one whose body is missing."""

    def _check_content_length(self, stream) -> None:
        pass


@dataclass
class Answer:
    """What came on one stream."""

    informational: list[dict[str, str]] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    trailers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    ended: bool = False
    reset: int | None = None

    @property
    def status(self) -> int:
        return int(self.headers[":status"])


class Http3:
    """A connection. Whatever waits reads datagrams meanwhile."""

    def __init__(
        self,
        port: int,
        *,
        authority: pathlib.Path | None = None,
        host: str = "a.example",
        alpn: Iterable[str] = H3_ALPN,
        source: str = "127.0.0.1",
        address: str = "127.0.0.1",
        **more,
    ) -> None:
        configuration = QuicConfiguration(is_client=True, alpn_protocols=list(alpn), server_name=host, **more)
        if authority:
            configuration.load_verify_locations(str(authority))
        else:
            configuration.verify_mode = ssl.CERT_NONE
        self.host = host
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self.socket.bind((source, 0))
        self.address = (address, port)
        self.socket.connect(self.address)
        self.quic = Quic(configuration=configuration)
        self.h3: H3Connection | None = None
        self.answers: dict[int, Answer] = {}
        self.terminated: ConnectionTerminated | None = None
        #: The server said that it does not know this connection: a stateless reset, of which aioquic takes no notice.
        self.forgotten = False
        self.events: list[QuicEvent] = []
        self.quic.connect(self.address, now=time.time())
        self.flush()

    def __enter__(self) -> Http3:
        self.wait(lambda: self.h3 is not None or self.terminated is not None)
        assert self.terminated is None, self.terminated
        return self

    def __exit__(self, *_) -> None:
        if self.terminated is None:
            self.quic.close(error_code=0x100)
            try:
                self.flush()
            except OSError:
                pass
        self.socket.close()

    def flush(self) -> None:
        for data, _ in self.quic.datagrams_to_send(now=time.time()):
            try:
                self.socket.send(data)
            except ConnectionRefusedError:
                # An answer by ICMP to an earlier one.
                pass

    def reset_tokens(self) -> list[bytes]:
        ids = [self.quic._peer_cid, *self.quic._peer_cid_available]
        return [token for token in (id.stateless_reset_token for id in ids) if token]

    def step(self, seconds: float) -> None:
        """Takes in what comes within that time, and sends what is due."""
        timer = self.quic.get_timer()
        if timer is not None:
            seconds = min(seconds, max(timer - time.time(), 0.001))
        self.socket.settimeout(max(seconds, 0.001))
        try:
            data = self.socket.recv(65536)
            while True:
                self.forgotten |= data[-16:] in self.reset_tokens()
                self.quic.receive_datagram(data, self.address, now=time.time())
                self.socket.settimeout(0)
                data = self.socket.recv(65536)
        except (TimeoutError, BlockingIOError, ConnectionRefusedError):
            pass
        if timer is not None and time.time() >= timer:
            self.quic.handle_timer(now=time.time())
        while (event := self.quic.next_event()) is not None:
            self.hear(event)
        self.flush()

    def hear(self, event: QuicEvent) -> None:
        self.events.append(event)
        if isinstance(event, HandshakeCompleted):
            self.h3 = Lenient(self.quic)
        if isinstance(event, ConnectionTerminated):
            self.terminated = event
        if isinstance(event, StreamReset) and event.stream_id in self.answers:
            self.answers[event.stream_id].reset = event.error_code
        for heard in self.h3.handle_event(event) if self.h3 else ():
            answer = self.answers.setdefault(heard.stream_id, Answer()) if hasattr(heard, "stream_id") else Answer()
            if isinstance(heard, HeadersReceived):
                fields = {name.decode(): value.decode("latin-1") for name, value in heard.headers}
                if answer.headers:
                    answer.trailers = fields
                elif fields.get(":status", "").startswith("1"):
                    answer.informational.append(fields)
                    # aioquic would take the next head for trailers.
                    self.h3._stream[heard.stream_id].headers_recv_state = HeadersState.INITIAL
                else:
                    answer.headers = fields
            if isinstance(heard, DataReceived):
                answer.body += heard.data
            if isinstance(heard, HeadersReceived | DataReceived):
                answer.ended |= heard.stream_ended

    def wait(self, condition: Callable[[], object], patience: float = PATIENCE) -> None:
        deadline = time.monotonic() + patience
        while not condition():
            assert time.monotonic() < deadline, f"waited {patience} s; the end: {self.terminated}"
            self.step(0.5)

    def begin(
        self,
        path: str = "/ok.php?x",
        method: str = "GET",
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        *,
        end: bool = True,
        host: str | None = None,
        pseudo: Iterable[tuple[str, str]] | None = None,
        bare: bool = False,
    ) -> int:
        """Sends a request's head, by aioquic or as bare bytes; returns its stream."""
        assert self.h3 is not None
        stream = self.quic.get_next_available_stream_id()
        own = [(":method", method), (":scheme", "https"), (":authority", host or self.host), (":path", path)]
        all_fields = [*(own if pseudo is None else pseudo), *(headers.items() if isinstance(headers, Mapping) else headers)]
        self.answers[stream] = Answer()
        if bare:
            self.quic.send_stream_data(stream, literally(all_fields), end_stream=end)
        else:
            self.h3.send_headers(stream, [(name.encode(), value.encode("latin-1")) for name, value in all_fields], end_stream=end)
        self.flush()
        return stream

    def raw(self, data: bytes, *, stream: int | None = None, end: bool = True) -> int:
        """Sends bytes as they are, on a new stream for a request or on one that is there; returns it."""
        if stream is None:
            stream = self.quic.get_next_available_stream_id()
            self.answers[stream] = Answer()
        self.quic.send_stream_data(stream, data, end_stream=end)
        self.flush()
        return stream

    def ended_for(self) -> int:
        """Waits for the server to end the connection; returns its reason."""
        self.wait(lambda: self.terminated is not None)
        assert self.terminated
        return self.terminated.error_code

    def send(self, stream: int, data: bytes, *, end: bool = True) -> None:
        assert self.h3 is not None
        self.h3.send_data(stream, data, end_stream=end)
        self.flush()

    def over(self, stream: int) -> bool:
        answer = self.answers[stream]
        return answer.ended or answer.reset is not None or self.terminated is not None

    def answer(self, stream: int) -> Answer:
        """Waits for its end."""
        self.wait(lambda: self.over(stream))
        assert self.terminated is None, self.terminated
        return self.answers[stream]

    def get(self, path: str = "/ok.php?x", method: str = "GET", headers: Mapping[str, str] = {}, body: bytes | None = None) -> Answer:
        stream = self.begin(path, method, headers, end=body is None)
        if body is not None:
            self.send(stream, body)
        return self.answer(stream)
