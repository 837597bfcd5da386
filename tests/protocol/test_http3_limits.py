"""What a client of HTTP/3 may make the server keep, and who is counted: as over TCP. And requests, of HTTP/2 as well, that contradict themselves."""

from __future__ import annotations

import contextlib
import pathlib
import socket
import struct
import time

import pytest

from lib.process import wait_until
from lib.servers import free_port
from lib.tls import TlsHayate, connect, context

from .h2 import END_HEADERS, END_STREAM, Raw
from .h2 import DATA as H2_DATA
from .h2 import HEADERS as H2_HEADERS
from .h2 import frame as h2_frame
from .h3 import PATIENCE, Http3, frame, literally
from .test_http3 import HEAD, client, connections, ports, text
from .test_http3 import place as place

DATA = 0
#: Writes without end, until nobody reads; it says that it begins, and that it was aborted.
ENDLESS = """<?php set_time_limit(0); touch($_GET['began'] . getmypid()); while (ob_get_level()) { ob_end_flush(); }
    register_shutdown_function(fn () => touch($_GET['ended'] . getmypid())); while (true) { echo str_repeat('x', 65536); flush(); }"""


def test_unfinished_heads_count_with_those_of_all(hayate_command, place) -> None:
    """Each of a connection's streams has a head that does not end."""
    config = text(place, place / "site", limits='gather_memory = "2M"\nheader_timeout = "300s"').replace('header_timeout = "3s"\n', "")
    with TlsHayate(config, ports()) as server, contextlib.ExitStack() as stack:
        greedy = [stack.enter_context(client(server, place)) for _ in range(2)]
        beside = stack.enter_context(client(server, place))
        # As large as a head may be, but for its end.
        begun = literally([*HEAD, ("x", "y" * 30_000)])[:-10]
        for one in greedy:
            for _ in range(60):
                one.raw(begun, end=False)
        deadline = time.monotonic() + PATIENCE
        while all(one.terminated is None for one in greedy):
            assert time.monotonic() < deadline, "3.6 MB of unfinished heads are put up with"
            for one in greedy:
                one.step(0.05)
        assert server.logged("gather_memory is reached")
        assert beside.get().status == 200
        # They go as if they had never been.
        with client(server, place) as again:
            assert again.get().status == 200


def test_a_small_answer_that_is_taken_too_slowly_is_cut(hayate_command, place) -> None:
    """All of it is with quinn at once; the client confirms a packet now and then."""
    (place / "site" / "half.bin").write_bytes(b"x" * (600 << 10))
    limits = 'write_timeout = "2s"\nwrite_rate = "100K"'
    config = text(place, place / "site", limits=limits, top='metrics = "127.0.0.1:{metrics}"')
    with TlsHayate(config, {**ports(), "metrics": free_port()}) as server:
        with client(server, place) as one:
            stream = one.begin("/half.bin")
            deadline = time.monotonic() + PATIENCE
            while connections(server) == 1:
                assert time.monotonic() < deadline, "it goes on"
                sip(one)
            assert not one.answers[stream].ended, "it was cut before its end"


def sip(one: Http3) -> None:
    """Takes one datagram, and leaves the others for a while."""
    one.socket.settimeout(0.2)
    with contextlib.suppress(TimeoutError):
        one.quic.receive_datagram(one.socket.recv(65536), one.address, now=time.time())
        while (event := one.quic.next_event()) is not None:
            one.hear(event)
    one.flush()
    time.sleep(0.1)


def initials(server: TlsHayate, source: str, number: int) -> list[socket.socket]:
    """Begins so many connections from an address, each from a port of its own, and goes on with none. The server has answered each."""
    made = []
    for _ in range(number):
        one = Http3(server.ports["tls"], source=source)
        one.socket.settimeout(PATIENCE)
        assert one.socket.recv(65536)
        made.append(one.socket)
    return made


def test_who_only_names_an_address_takes_no_place_of_it(hayate_command, place) -> None:
    config = text(place, place / "site", limits="connections_by_address = 3")
    with TlsHayate(config, ports()) as server, contextlib.ExitStack() as stack:
        # As somebody does who forges 127.0.0.2: answers go where nobody asked for them.
        for forged in initials(server, "127.0.0.2", 12):
            stack.enter_context(forged)
        for _ in range(2):
            tcp = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60, source_address=("127.0.0.2", 0)))
            tcp.sendall(b"GET /ok.php?x HTTP/1.1\r\nHost: a.example\r\n\r\n")
            assert tcp.recv(15) == b"HTTP/1.1 200 OK"
        # Who has shown to be there counts, by whatever protocol.
        third = stack.enter_context(client(server, place, source="127.0.0.2"))
        assert third.get().status == 200
        fourth = client(server, place, source="127.0.0.2")
        fourth.wait(lambda: fourth.terminated is not None)
        # Before a handshake: it had to show that it is there (Retry), and was refused for that (RFC 9000, 20.1: CONNECTION_REFUSED).
        assert fourth.quic._retry_count == 1 and fourth.terminated.error_code == 2
        fourth.__exit__()
        with client(server, place, source="127.0.0.3") as other:
            assert other.get().status == 200
        assert third.get().status == 200


def small_heads_only(server: TlsHayate, place: pathlib.Path, monkeypatch: pytest.MonkeyPatch, size: int) -> Http3:
    """A client that says that it takes heads of so many bytes (SETTINGS_MAX_FIELD_SECTION_SIZE)."""
    from aioquic.h3 import connection

    with monkeypatch.context() as patch:
        real = connection.encode_frame
        said = frame(4, b"\x06" + (size | 0x4000).to_bytes(2))
        patch.setattr(connection, "encode_frame", lambda kind, data: said if kind == 4 else real(kind, data))
        one = client(server, place)
        one.wait(lambda: one.h3 is not None)
    return one


def test_who_takes_no_head_keeps_no_script_busy(hayate_command, place, monkeypatch) -> None:
    (place / "site" / "endless.php").write_text(ENDLESS)
    marks = place / "marks"
    log = marks / "small-heads.log"
    config = text(place, place / "site", top=f'access_log = "{log}"')
    with TlsHayate(config, ports(), access_log=None) as server:
        with small_heads_only(server, place, monkeypatch, 41) as one:
            path = f"/endless.php?began={marks}/small-began-&ended={marks}/small-ended-"
            streams = [one.raw(literally([*HEAD[:3], (":path", path)])) for _ in range(2)]
            for stream in streams:
                assert one.answer(stream).reset is not None and not one.answers[stream].headers
            assert wait_until(lambda: len(list(marks.glob("small-ended-*"))) == len(list(marks.glob("small-began-*"))) > 0, PATIENCE)
            with client(server, place) as other:
                assert other.get().status == 200
            # No file goes into nothing either, and nobody writes down that it was sent.
            assert one.answer(one.raw(literally([*HEAD[:3], (":path", "/plain.txt")]))).reset is not None
        assert wait_until(lambda: log.read_text().count('"GET /plain.txt HTTP/3.0" 499 0 ') == 1, PATIENCE), log.read_text()
        assert log.read_text().count("/endless.php") == log.read_text().count(' 499 0 ') - 1 == 2
    for mark in marks.glob("small-*"):
        mark.unlink()


@pytest.mark.parametrize("target", ["/plain.txt", "/nowhere", "/sub", "/ok.php?x"])
@pytest.mark.parametrize(("length", "body"), [("3", b""), ("5", b"abcd"), ("3", b"abcd")])
def test_a_length_that_is_not_the_bodys_whoever_answers(hayate_command, place, target, length, body, contradicted) -> None:
    one = contradicted
    whole = literally([*HEAD[:3], (":path", target), ("content-length", length)]) + (frame(DATA, body) if body else b"")
    answer = one.answer(one.raw(whole))
    # What is an error anyway may be said first.
    assert answer.reset is not None or answer.status in ((400, 404) if target == "/nowhere" else (400,)), answer
    assert one.get("/plain.txt").status == 200


@pytest.mark.parametrize("target", ["/plain.txt", "/ok.php?x"])
@pytest.mark.parametrize(("length", "body"), [("3", b""), ("5", b"abcd"), ("3", b"abcd")])
def test_the_same_over_http2(hayate_command, contradicted_h2, target, length, body) -> None:
    server, place = contradicted_h2
    with connect(server.ports["tls"], "a.example", context(place / "one.pem", alpn=("h2",))) as tls:
        two = Raw(tls)
        head = two.head(target, ("content-length", length))
        two.send(
            h2_frame(H2_HEADERS, END_HEADERS | (0 if body else END_STREAM), 1, head) + (h2_frame(H2_DATA, END_STREAM, 1, body) if body else b"")
        )
        assert two.status(1) in ("400", "reset")
        two.request(3, "/plain.txt")
        assert two.status(3) == "200"


def test_a_length_that_is_the_bodys_although_nobody_reads_it(contradicted) -> None:
    one = contradicted
    for size in (1, 1000, 100_000):
        stream = one.begin("/plain.txt", headers={"content-length": str(size)}, end=False)
        one.send(stream, b"x" * size)
        assert one.answer(stream).status == 200


@pytest.fixture(scope="module")
def contradicted_h2(hayate_command, place):
    with TlsHayate(text(place, place / "site"), ports()) as server:
        yield server, place


@pytest.fixture
def contradicted(contradicted_h2):
    server, place = contradicted_h2
    with client(server, place) as one:
        yield one
