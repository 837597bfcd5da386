"""HTTP/2 over TLS, with clients that mean harm: each costs itself, never the server, and never another client."""

from __future__ import annotations

import asyncio
import pathlib
import socket
import ssl
import tempfile
import time
from collections.abc import Callable

import pytest

from lib import site
from lib.process import wait_until
from lib.servers import free_port
from lib.tls import TlsHayate, connect, context, self_signed

from .h2 import (
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PRIORITY, PUSH, RST_STREAM, SETTINGS, WINDOW_UPDATE, Raw, frame,
)  # fmt: skip

CONFIG = """
listen = ["127.0.0.1:{port}", { address = "127.0.0.1:{tls}", tls = true }]
[tls]
certificates = [{ certificate = "%s/one.pem", key = "%s/one.key" }]
[limits]
body_timeout = "3s"
write_timeout = "3s"
[[app]]
root = "%s"
workers = 2
request_buffering = false
"""

PROTOCOL_ERROR, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR, ENHANCE_YOUR_CALM = 1, 3, 6, 11


@pytest.fixture(scope="module")
def server(hayate_command):
    with tempfile.TemporaryDirectory() as directory:
        place = pathlib.Path(directory)
        place.chmod(0o755)
        self_signed(place, "one", ["a.example"])
        root = site.make(place)
        with TlsHayate(CONFIG % (place, place, root), {"port": free_port(), "tls": free_port()}) as running:
            running.certificate = place / "one.pem"
            yield running


@pytest.fixture
def client(server):
    made = context(server.certificate, alpn=["h2"])
    opened: list[Raw] = []

    def open_one(settings: bytes = b"") -> Raw:
        opened.append(Raw(connect(server.ports["tls"], "a.example", made), settings))
        return opened[-1]

    before = server.status()["front"]
    yield open_one
    for one in opened:
        one.sock.close()
    # Another client is served, by the same process.
    fresh = Raw(connect(server.ports["tls"], "a.example", made))
    assert fresh.request(1) and fresh.status(1) == "200"
    fresh.sock.close()
    assert server.status()["front"] == before


def test_requests_side_by_side(client) -> None:
    one = client()
    for stream in range(1, 41, 2):
        assert one.request(stream)
    assert {stream: one.status(stream) for stream in (39,)} == {39: "200"}


class Counting:
    """A connection with TLS that counts the records that come."""

    def __init__(self, port: int, made: ssl.SSLContext) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.come, self.go = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = made.wrap_bio(self.come, self.go, server_hostname="a.example")
        self.records, self.wire = 0, b""
        self._until(self.tls.do_handshake)

    def _until(self, step: Callable):
        """Does what needs bytes of the other side, as soon as they are there."""
        while True:
            try:
                done = step()
                self.sock.sendall(self.go.read())
                return done
            except ssl.SSLWantReadError:
                self.sock.sendall(self.go.read())
                more = self.sock.recv(65536)
                assert more, "the connection is over"
                self.come.write(more)
                self.wire += more
                while len(self.wire) >= 5 and len(self.wire) >= (size := 5 + int.from_bytes(self.wire[3:5], "big")):
                    self.records, self.wire = self.records + 1, self.wire[size:]

    def sendall(self, data: bytes) -> None:
        self._until(lambda: self.tls.write(data))

    def recv(self, size: int) -> bytes:
        return self._until(lambda: self.tls.read(size))

    def settimeout(self, seconds: float) -> None:
        self.sock.settimeout(seconds)

    def close(self) -> None:
        self.sock.close()


def test_answers_that_are_ready_at_one_time_leave_together(server) -> None:
    """Each piece that is written is a record of TLS and a system call: a hundred small answers are a few of them, not a hundred."""
    sock = Counting(server.ports["tls"], context(server.certificate, alpn=["h2"]))
    one = Raw(sock)
    # The file is known by then, and settings are agreed.
    one.request(1, "/plain.txt")
    one.until(lambda kind, flags, *_: kind == DATA and flags & END_STREAM)
    before, streams = sock.records, range(3, 203, 2)
    one.send(b"".join(frame(HEADERS, END_HEADERS | END_STREAM, stream, one.head("/plain.txt")) for stream in streams))
    ended: set[int] = set()
    while len(ended) < len(streams):
        _, _, stream, payload = one.until(lambda kind, flags, *_: kind == DATA and flags & END_STREAM)
        assert payload.startswith(b"plain text")
        ended.add(stream)
    assert sock.records - before <= len(streams) // 5
    sock.close()


def test_rapid_reset(client) -> None:
    """CVE-2023-44487: requests that are taken back at once. The connection ends; PHP runs for a few of them at most."""
    one = client()
    for stream in range(1, 40_001, 2):
        if not (one.request(stream, "/sleep.php?ms=50") and one.send(frame(RST_STREAM, 0, stream, b"\0\0\0\x08"))):
            break
    # Its reason is lost when bytes that nobody reads any more make the end a reset.
    assert one.closed or one.error() == ENHANCE_YOUR_CALM or one.closed


def test_resets_while_queued_and_while_streaming(client, server) -> None:
    one = client()
    # Two workers: the others wait.
    for stream in range(1, 21, 2):
        one.request(stream, "/sleep.php?ms=300")
    for stream in range(5, 21, 2):
        one.send(frame(RST_STREAM, 0, stream, b"\0\0\0\x08"))
    assert one.status(1) == "200"
    two = client()
    for stream in (1, 3):
        two.request(stream, "/large.php?mb=50")
        assert two.until(lambda kind, *_: kind == DATA) is not None
        two.send(frame(RST_STREAM, 0, stream, b"\0\0\0\x08"))
    # Both workers are free again soon.
    assert wait_until(lambda: not any(app["queue"] or app["active"] for app in server.status()["apps"]), interval=0.1)


def test_continuation_flood(client) -> None:
    """CVE-2024-27983 and kin: a head that never ends."""
    one = client()
    one.send(frame(HEADERS, END_STREAM, 1, one.head()))
    for i in range(20_000):
        block = one.encoder.encode([(f"x-{i}", "y" * 100)], huffman=False)
        if not one.send(frame(CONTINUATION, 0, 1, block)):
            break
    assert one.closed or one.error() in (PROTOCOL_ERROR, ENHANCE_YOUR_CALM) or one.closed


def test_empty_continuations_and_empty_data(client) -> None:
    one = client()
    one.send(frame(HEADERS, END_STREAM, 1, one.head()))
    for _ in range(50_000):
        if not one.send(frame(CONTINUATION, 0, 1)):
            break
    assert one.closed or one.error() is not None or one.closed
    two = client()
    two.request(1, "/echo.php", method="POST", end=False)
    for _ in range(100_000):
        if not two.send(frame(DATA, 0, 1)):
            break
    # It ends, or the request fails once its time is over.
    assert two.closed or two.until(lambda kind, *_: kind in (RST_STREAM, GOAWAY, HEADERS)) or two.closed


def fill(one: Raw) -> None:
    """Sends of the body on stream 1 as much as is taken in before a worker asks for it: until its window has not been opened for a second."""
    window, since = 65535, time.monotonic()
    # It is opened by half of what it was at the beginning.
    while window >= 32768 or time.monotonic() - since < 1:
        if window >= 32768:
            assert one.send(frame(DATA, 0, 1, b"x" * 16384))
            window, since = window - 16384, time.monotonic()
        else:
            time.sleep(0.01)
        assert one.send(frame(PING, 0, 0, b"12345678"))
        while (got := one.until(lambda kind, *_: kind in (PING, WINDOW_UPDATE, RST_STREAM, GOAWAY))) and got[0] == WINDOW_UPDATE:
            window += int.from_bytes(got[3], "big") if got[2] == 1 else 0
        assert got and got[0] == PING


def unread_frames_of_a_byte(server, open_one: Callable[[], Raw], most: int) -> int:
    """How many of them a connection may send that nobody has read, in hundreds: a PUT is not read before a worker takes it, and all are busy."""
    with tempfile.TemporaryDirectory() as directory:
        pathlib.Path(directory).chmod(0o755)
        go = pathlib.Path(directory) / "go"
        busy, one = open_one(), open_one()
        try:
            for stream in (1, 3):
                assert busy.request(stream, f"/hold.php?go={go}")
            assert wait_until(lambda: sum(app["active"] for app in server.status()["apps"]) == 2)
            one.request(1, "/count.php", method="PUT", end=False)
            fill(one)
            sent = 0
            while sent < most and one.send(frame(DATA, 0, 1, b"x") * 100 + frame(PING, 0, 0, b"12345678")):
                got = one.until(lambda kind, flags, *_: kind == GOAWAY or kind == PING and flags & ACK)
                if got is None or got[0] == GOAWAY:
                    # Its reason is lost when bytes that nobody reads any more make the end a reset.
                    assert got is None or int.from_bytes(got[3][4:8], "big") == ENHANCE_YOUR_CALM
                    break
                sent += 100
        finally:
            go.touch()
        assert [busy.status(stream) for stream in (1, 3)] == ["200", "200"]
    return sent


def test_data_in_frames_of_a_byte(client) -> None:
    """What was read costs nothing: a POST is gathered as it comes. All together it is several times as much as may wait."""
    one = client()
    one.request(1, "/count.php", method="POST", end=False)
    for _ in range(100):
        assert one.send(frame(DATA, 0, 1, b"x") * 100 + frame(PING, 0, 0, b"12345678"))
        assert one.until(lambda kind, flags, *_: kind == PING and flags & ACK)
    assert one.send(frame(DATA, END_STREAM, 1, b"x")) and one.status(1) == "200"
    body = one.until(lambda kind, *_: kind == DATA)
    assert body is not None and body[3] == b"10001"


@pytest.mark.parametrize(
    ("keys", "least", "most"),
    # A frame of one byte wastes 255.
    [("", 2000, 4000), ('http2_frame_budget = "32K"\nhttp2_errors = 3\n', 100, 400)],
    ids=["defaults", "keys"],
)
def test_what_a_connection_may_waste(server, hayate_command, keys, least, most) -> None:
    text = server._config.read_text().replace('body_timeout = "3s"\n', keys)
    for name in ("port", "tls"):
        text = text.replace(f":{server.ports[name]}", f":{{{name}}}")
    ports = {"port": free_port(), "tls": free_port()}
    with TlsHayate(text, ports) as running:
        opened: list[Raw] = []

        def open_one() -> Raw:
            opened.append(Raw(connect(ports["tls"], "a.example", context(server.certificate, alpn=["h2"]))))
            return opened[-1]

        try:
            assert least <= unread_frames_of_a_byte(running, open_one, 10_000) <= most
            # A head that may not be is cut off alone, so and so many times.
            one, errors = open_one(), 3 if keys else 1024
            for number in range(errors):
                one.request(1 + 2 * number, "/ok.php?x", ("connection", "close"))
                assert one.status(1 + 2 * number) == "reset"
            one.request(1 + 2 * errors, "/ok.php?x", ("connection", "close"))
            assert one.error() == ENHANCE_YOUR_CALM
        finally:
            for one in opened:
                one.sock.close()


@pytest.mark.parametrize("kind", ["settings", "ping"])
def test_floods_of_frames_that_want_an_answer(client, server, kind) -> None:
    """The answers are not read. What waits for this client stays small."""
    one = client()
    piece = (frame(SETTINGS, 0, 0) if kind == "settings" else frame(PING, 0, 0, b"12345678")) * 100
    one.sock.settimeout(3)
    for _ in range(5_000):
        if not one.send(piece):
            break
    rss = int((pathlib.Path("/proc") / str(server.status()["front"]) / "statm").read_text().split()[1]) * 4
    assert rss < 200_000, f"{rss} KB"


def test_window_tricks(client) -> None:
    # Beyond the largest window.
    one = client()
    one.send(frame(WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff"))
    assert one.error() == FLOW_CONTROL_ERROR
    # No step at all.
    one = client()
    one.send(frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\0"))
    assert one.error() == PROTOCOL_ERROR
    # More of a body than there is room for.
    one = client()
    one.request(1, "/sleep.php?ms=100", method="PUT", end=False)
    for _ in range(200):
        if not one.send(frame(DATA, 0, 1, b"x" * 16384)):
            break
    got = None if one.closed else one.until(lambda kind, *_: kind in (RST_STREAM, GOAWAY))
    assert one.closed or got is not None
    # A client that takes nothing of its answers ends after its time; its worker is for others.
    one = client(b"\0\x04\0\0\0\0")
    for stream in (1, 3, 5, 7):
        one.request(stream, "/large.php?mb=5")
    other = client()
    assert other.request(1) and other.status(1) == "200"
    got = one.until(lambda kind, *_: kind in (RST_STREAM, GOAWAY))
    assert got is None or got[0] in (RST_STREAM, GOAWAY)


def test_header_bombs(client) -> None:
    # One entry of the table, used again and again: 4 KB become 16 MB (CVE-2016-1544).
    one = client()
    one.head("/ok.php", ("x-bomb", "y" * 3900))
    bomb = one.head("/ok.php", ("x-bomb", "y" * 3900))
    indexed = one.encoder.encode([("x-bomb", "y" * 3900)])
    one.encoder = type(one.encoder)()
    first = one.head("/ok.php", ("x-bomb", "y" * 3900))
    assert bomb and len(indexed) < 10
    one.send(frame(HEADERS, END_STREAM, 1, first + indexed * 4000))
    one.send(frame(CONTINUATION, END_HEADERS, 1, indexed * 1000))
    assert one.closed or one.status(1) in ("431", "reset", None)
    # Many headers, and one that is large.
    for more in ([(f"x-{i}", "y") for i in range(500)], [("x-large", "y" * 12_000), ("x-more", "y" * 12_000), ("x", "y" * 12_000)]):
        one = client()
        block = one.head("/ok.php", *more)
        pieces = [block[at : at + 16_000] for at in range(0, len(block), 16_000)]
        one.send(frame(HEADERS, END_STREAM | (END_HEADERS if len(pieces) == 1 else 0), 1, pieces[0]))
        for i, piece in enumerate(pieces[1:], 2):
            one.send(frame(CONTINUATION, END_HEADERS if i == len(pieces) else 0, 1, piece))
        assert one.status(1) in ("431", "reset")


@pytest.mark.parametrize(
    ("authority", "fields", "statuses"),
    [
        ("a.example", [("host", "b.example")], {"400", "reset"}),
        (None, [], {"400", "reset"}),
        (None, [("host", "a.example")], {"200"}),
        ("a.example", [("host", "a.example")], {"200"}),
        ("a.example/x", [], {"400", "reset"}),
        ("user@a.example", [], {"400", "reset"}),
        ("a.example", [("connection", "close")], {"reset"}),
        ("a.example", [("transfer-encoding", "chunked")], {"reset"}),
        ("a.example", [("te", "gzip")], {"reset", "400", "200"}),
        ("a.example", [("X-Upper", "y")], {"reset"}),
        ("a.example", [("x-nul", "a\0b")], {"reset", "400"}),
        ("a.example", [("x-line", "a\r\nx: b")], {"reset", "400"}),
        ("a.example", [(":late", "x")], {"reset"}),
        ("a.example", [(":path", "/twice")], {"reset"}),
        ("a.example", [("content-length", "5")], {"reset", "400"}),
    ],
)
def test_heads_that_contradict_themselves(client, authority, fields, statuses) -> None:
    one = client()
    one.request(1, "/ok.php?x", *fields, authority=authority)
    # A broken connection is as good.
    assert one.status(1) in statuses | ({None} if "200" not in statuses else set())


@pytest.mark.parametrize(
    "words",
    [
        frame(DATA, 0, 0, b"x"),
        frame(DATA, 0, 1, b"x"),
        frame(HEADERS, END_HEADERS | END_STREAM, 2, b"\x82\x87\x84"),
        frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
        frame(PRIORITY, 0, 1, b"x"),
        frame(SETTINGS, 0, 1),
        frame(SETTINGS, ACK, 0, b"x"),
        frame(SETTINGS, 0, 0, b"\0\x04\xff\xff\xff\xff"),
        frame(PING, 0, 0, b"short"),
        frame(PUSH, END_HEADERS, 1, b"\0\0\0\2\x82"),
        frame(CONTINUATION, END_HEADERS, 1, b"\x82"),
        frame(RST_STREAM, 0, 1, b"\0\0\0\0"),
        frame(HEADERS, END_STREAM, 1, b"\x82") + frame(PING, 0, 0, b"12345678"),
        b"\xff\xff\xff\0\0\0\0\0\0",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_frames_that_may_not_be(client, words) -> None:
    one = client()
    one.send(words)
    got = None if one.closed else one.until(lambda kind, *_: kind in (GOAWAY, RST_STREAM))
    assert one.closed or got is not None


def test_a_body_that_stops_ends_alone(client) -> None:
    one = client()
    one.request(1, "/echo.php", ("content-length", "100"), method="POST", end=False)
    one.send(frame(DATA, 0, 1, b"some"))
    one.request(3)
    assert one.status(3) == "200"
    assert one.status(1) is not None
    one.request(5)
    assert one.status(5) == "200"


def test_which_bytes_of_a_target_are_lost(client) -> None:
    """docs/tls.md, "What is left": what the http crate takes for no URI, h2 resets before this server sees it. The stream alone ends."""
    for part, lost in (("/ok.php/{}", "<>`"), ("/ok.php?{}", '<>"')):
        one = client()
        for i, byte in enumerate(range(0x21, 0x7F)):
            if chr(byte) in "#?":
                continue
            stream = 2 * i + 1
            one.request(stream, part.format(chr(byte)))
            status = one.status(stream)
            assert (status == "reset") == (chr(byte) in lost) and status != "500", (part, chr(byte), status)


def test_extended_connect_is_refused(client) -> None:
    one = client()
    block = one.encoder.encode(
        [(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "https"), (":path", "/"), (":authority", "a.example")]
    )
    one.send(frame(HEADERS, END_HEADERS, 1, block))
    assert one.status(1) in ("405", "501", "400", "reset")
    assert one.request(3) and one.status(3) == "200"


def test_http1_and_http2_see_the_same(server) -> None:
    import json

    made = context(server.certificate, alpn=["h2"])
    two = Raw(connect(server.ports["tls"], "a.example", made))
    two.request(1, "/server.php?a=b", ("cookie", "a=1"), ("cookie", "b=2"), ("x-own", "v"))
    assert two.status(1) == "200"
    data = two.until(lambda kind, *_: kind == DATA)
    seen_2 = json.loads(data[3])
    with connect(server.ports["tls"], "a.example", context(server.certificate)) as tls:
        tls.sendall(b"GET /server.php?a=b HTTP/1.1\r\nHost: a.example\r\nCookie: a=1; b=2\r\nX-Own: v\r\n\r\n")
        import http.client

        answer = http.client.HTTPResponse(tls)
        answer.begin()
        seen_1 = json.loads(answer.read())
    changing = {"REMOTE_PORT", "REQUEST_TIME", "REQUEST_TIME_FLOAT", "SERVER_PROTOCOL", "UNIQUE_ID", "SSL_SESSION_REUSED"}
    assert seen_2["SERVER_PROTOCOL"] == "HTTP/2.0" and seen_1["SERVER_PROTOCOL"] == "HTTP/1.1"
    assert {k: v for k, v in seen_1.items() if k not in changing} == {k: v for k, v in seen_2.items() if k not in changing}


def test_pythons_httpx_on_one_connection(server) -> None:
    """A client that others wrote: bodies both ways, side by side, an answer that is streamed, one that is left in its middle."""
    httpx = pytest.importorskip("httpx", reason="httpx is not installed (scripts/setup --test)")
    body = bytes(range(256)) * 2000

    async def play() -> None:
        url, headers = f"https://127.0.0.1:{server.ports['tls']}", {"host": "a.example"}
        limits = httpx.Limits(max_connections=1)
        async with httpx.AsyncClient(http2=True, verify=False, base_url=url, headers=headers, limits=limits, timeout=60) as one:
            answers = await asyncio.gather(*(one.get(f"/ok.php?{i}") for i in range(50)))
            assert [answer.text for answer in answers] == [f"ok {i}" for i in range(50)]
            assert {answer.http_version for answer in answers} == {"HTTP/2"}
            echoes = await asyncio.gather(*(one.request(method, "/echo.php", content=body) for method in ("POST", "PUT") * 3))
            assert all(answer.content == body for answer in echoes)
            async with one.stream("GET", "/large.php?mb=20") as answer:
                async for _ in answer.aiter_bytes():
                    break
            async with one.stream("GET", "/large.php?mb=5") as answer:
                assert sum([len(piece) async for piece in answer.aiter_bytes()]) == 5 << 20
            assert (await one.head("/plain.txt")).headers["content-length"] == "32"
            assert (await one.get("/nowhere")).status_code == 404

    asyncio.run(play())
