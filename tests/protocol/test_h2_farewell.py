"""How connections of HTTP/2 end that the server ends: by a reload, an upgrade, a stop. What their clients have asked for comes whole; what they
ask for later is refused so that they may ask again; and nobody stays for ever by not saying that he has heard of it."""

from __future__ import annotations

import contextlib
import http.client
import pathlib
import re
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator

import pytest

from lib import site
from lib.process import wait_until
from lib.servers import free_port, hayate_binary
from lib.tls import TlsHayate, context, self_signed

from .h2 import ACK, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RST_STREAM, WINDOW_UPDATE, Raw, frame

CONFIG = """
listen = [{ address = "127.0.0.1:{port}", tls = true }]
metrics = "127.0.0.1:{metrics}"
drain_timeout = "60s"
[tls]
certificates = [{ certificate = "%(place)s/one.pem", key = "%(place)s/one.key" }]
client_ca = "%(place)s/one.pem"
verify = "optional"
[limits]
idle_timeout = "%(idle)s"
[[app]]
root = "%(root)s"
workers = 2
"""
LATE = "<?php usleep(1500000); echo str_repeat('x', $_GET['n']);"
#: More than a client's window of 64 KB, less than the kernel keeps for a client that reads slowly.
SIZE = 200_000
WIDE = (4).to_bytes(2, "big") + (6 << 20).to_bytes(4, "big"), frame(WINDOW_UPDATE, 0, 0, (15 << 20).to_bytes(4, "big"))
REFUSED_STREAM = (7).to_bytes(4, "big")


@pytest.fixture
def server(request, hayate_command) -> Iterator[TlsHayate]:
    idle = getattr(request, "param", "75s")
    with tempfile.TemporaryDirectory() as directory:
        place = pathlib.Path(directory)
        place.chmod(0o755)
        self_signed(place, "one", ["a.example"])
        root = site.make(place)
        (root / "late.php").write_text(LATE)
        with (root / "large.bin").open("wb") as large:
            large.truncate(7_000_000)
        with TlsHayate(CONFIG % {"place": place, "root": root, "idle": idle}, {"port": free_port(), "metrics": free_port()}) as running:
            running.made = context(place / "one.pem", alpn=["h2"])
            running.place = place
            yield running


def connect(server: TlsHayate, receives: int, settings: bytes = b"") -> Raw:
    tcp = socket.socket()
    tcp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
    tcp.connect(("127.0.0.1", server.ports["port"]))
    return Raw(server.made.wrap_socket(tcp, server_hostname="a.example"), settings)


def ends_connections(server: TlsHayate, how: str) -> subprocess.Popen:
    """Begins a reload that asks something else of clients, an upgrade, or a stop."""
    if how == "reload":
        config = server._config
        config.write_text(config.read_text().replace('verify = "optional"', 'verify = "required"'))
    return subprocess.Popen([hayate_binary(), how, "--control", server.control], stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("how", ["reload", "upgrade", "stop"])
@pytest.mark.parametrize(("path", "size", "receives", "each"), [(f"/late.php?n={SIZE}", SIZE, 16 << 10, 64 << 10), ("/large.bin", 7_000_000, 64 << 10, 500_000)])
def test_who_reads_slowly_gets_all(server, how, path, size, receives, each) -> None:
    """The client goes on to open its windows while it reads; a server that is gone by then would reset the connection."""
    one = connect(server, receives, WIDE[0])
    one.send(WIDE[1])
    one.request(1, path)
    ending = None
    if path.startswith("/late"):
        time.sleep(0.3)
        ending = ends_connections(server, how)
    received, since, whole = 0, 0, False
    while not whole:
        got = one.receive()
        assert got is not None, f"cut off after {received} of {size} bytes"
        kind, flags, stream, payload = got
        if kind == PING and not flags & ACK:
            one.send(frame(PING, ACK, 0, payload))
        elif kind == DATA:
            received, since, whole = received + len(payload), since + len(payload), bool(flags & END_STREAM)
            time.sleep(0.004)
            if since >= each and not whole:
                window = since.to_bytes(4, "big")
                one.send(frame(WINDOW_UPDATE, 0, 0, window) + frame(WINDOW_UPDATE, 0, stream, window))
                since = 0
        if ending is None and received >= 100_000:
            ending = ends_connections(server, how)
            time.sleep(0.5)
    assert received == size
    while one.receive() is not None:
        pass
    one.sock.close()
    assert ending.wait(60) == 0


@pytest.mark.parametrize("server", ["1s"], indirect=True)
def test_who_reads_slowly_gets_all_although_it_asks_for_nothing_more(server) -> None:
    """All is with the kernel for longer than a connection may be idle; which it may for a second."""
    one = connect(server, 16 << 10, WIDE[0])
    one.send(WIDE[1])
    one.request(1, f"/late.php?n={SIZE}")
    received, paused, whole, said = 0, False, False, []
    while not whole:
        got = one.receive()
        assert got is not None, f"cut off after {received} of {SIZE} bytes"
        if got[0] == DATA:
            received, whole = received + len(got[3]), bool(got[1] & END_STREAM)
        if received >= 64 << 10 and not paused:
            paused = True
            time.sleep(4)
            one.send(frame(WINDOW_UPDATE, 0, 0, received.to_bytes(4, "big")))
            time.sleep(0.2)
    while (got := one.receive()) is not None:
        said.append(got[0])
    assert received == SIZE and GOAWAY in said


@pytest.mark.parametrize("how", ["reload", "upgrade"])
def test_who_does_not_answer_a_ping_is_let_go_as_well(server, how) -> None:
    """What he has asked for he gets, and nothing that he asks for afterwards."""
    go = server.place / "go"
    one, idle = connect(server, 64 << 10), connect(server, 64 << 10)
    assert idle.request(1) and idle.status(1) == "200"
    assert one.request(1, f"/hold.php?go={go}")
    assert ends_connections(server, how).wait(60) == 0
    # It says once that it is about to end, with no last stream yet.
    announced = one.until(lambda kind, *_: kind == GOAWAY)
    assert announced is not None and announced[3][:8] == b"\x7f\xff\xff\xff" + bytes(4)
    stream, refused, end = 1, None, time.monotonic() + 30
    while refused is None and time.monotonic() < end:
        stream += 2
        assert one.request(stream, "/plain.txt")
        ends = lambda kind, flags, of, _, it=stream: of == it and (kind == RST_STREAM or flags & END_STREAM)  # noqa: E731
        got = one.until(ends)
        assert got is not None, "a request was lost with its connection"
        refused = got[3] if got[0] == RST_STREAM else None
        time.sleep(0.05)
    # So the client may ask again elsewhere.
    assert refused == REFUSED_STREAM
    go.touch()
    held = one.until(lambda kind, flags, of, _: kind == DATA and of == 1)
    assert held is not None and held[3] == b"held"
    last = one.until(lambda kind, *_: kind == GOAWAY)
    assert last is not None and last[3][:8] == stream.to_bytes(4, "big") + bytes(4)
    for client in (one, idle):
        while client.receive() is not None:
            pass
        client.sock.close()
    if how == "upgrade":
        assert wait_until(lambda: len(server.family()) == 4), server.family()


def broken(server: TlsHayate) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", server.ports["metrics"], timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    return int(re.search(r"(?m)^hayate_connections_broken_total (\d+)$", text)[1])


def resets(one: Raw) -> None:
    for stream in range(1, 401, 2):
        one.send(frame(HEADERS, END_STREAM | END_HEADERS, stream, one.head("/plain.txt")) + frame(RST_STREAM, 0, stream, bytes(4)))


def empty_frames(one: Raw) -> None:
    one.request(1, "/hold.php?go=/nowhere", method="POST", end=False)
    one.send(frame(DATA, 0, 1) * 500)


def unknown_fields(one: Raw) -> None:
    one.send(frame(HEADERS, END_STREAM | END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff"))


def test_who_breaks_the_protocol_is_told_counted_and_named(server) -> None:
    """No request was refused, so nothing else would say so. The client hears why, although it goes on sending."""
    assert broken(server) == 0
    for count, (breaks, reasons) in enumerate([(resets, {11}), (empty_frames, {11}), (unknown_fields, {1, 9})], 1):
        one = connect(server, 64 << 10)
        breaks(one)
        one.send(frame(PING, 0, 0, bytes(8)) * 100)
        assert one.error() in reasons
        one.sock.close()
        assert wait_until(lambda count=count: broken(server) == count), breaks
    # Who leaves has broken nothing.
    two = connect(server, 64 << 10)
    assert two.request(1) and two.status(1) == "200"
    two.sock.close()
    assert server.logged("a connection was ended, for its client broke the protocol: ") and "127.0.0.1" in server.log()
    assert broken(server) == 3
