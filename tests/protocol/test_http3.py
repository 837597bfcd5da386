"""HTTP/3 from outside: what scripts see, bodies both ways, what is turned away, and what reloads, upgrades and deaths do to connections."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import signal
import socket
import ssl
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator

import pytest

from lib import site
from lib.process import wait_until
from lib.servers import free_port
from lib.tls import TlsHayate, connect, context, get, self_signed, serial

from .h3 import PATIENCE, Answer, Http3

USER = 'user = "www-data"' if os.geteuid() == 0 else ""
CONFIG = """
listen = [ "127.0.0.1:{port}", { address = "127.0.0.1:{tls}", tls = true }, { address = "127.0.0.1:{both}", tls = true, proxy_protocol = true } ]
trusted_proxies = "192.0.2.1"
front_threads = 2
%(user)s
%(top)s
[limits]
idle_timeout = "%(idle)s"
header_timeout = "3s"
%(limits)s
[tls]
http3 = true
redirect_http = false
certificates = [ { certificate = "%(files)s/one.pem", key = "%(files)s/one.key" } ]
%(tls)s
[[app]]
root = "%(root)s"
workers = 2
%(app)s
"""
HEAD = [(":method", "GET"), (":scheme", "https"), (":authority", "a.example"), (":path", "/ok.php?x")]
#: HTTP/3's codes (RFC 9114, 8.1).
NO_ERROR, INTERNAL_ERROR, EXCESSIVE_LOAD, MESSAGE_ERROR = 0x100, 0x102, 0x107, 0x10E


def text(files: pathlib.Path, root: pathlib.Path, *, top="", limits="", tls="", app="", idle="60s") -> str:
    return CONFIG % {
        "user": USER, "files": files, "root": root, "top": top, "limits": limits, "tls": tls, "app": app, "idle": idle,
    }  # fmt: skip


def ports() -> dict[str, int]:
    return {name: free_port() for name in ("port", "tls", "both")}


@pytest.fixture(scope="module")
def place() -> Iterator[pathlib.Path]:
    # Where www-data can read the site.
    with tempfile.TemporaryDirectory() as directory:
        made = pathlib.Path(directory)
        made.chmod(0o755)
        root = site.make(made)
        # Notes that it began, then waits until it may end.
        (root / "hold.php").write_text(
            "<?php touch($_GET['began']); set_time_limit(0);"
            "while (!file_exists($_GET['go'])) { usleep(2000); clearstatcache(); } echo 'held';"
        )
        self_signed(made, "one", ["a.example"])
        (made / "marks").mkdir()
        (made / "marks").chmod(0o777)
        yield made


@pytest.fixture(scope="module")
def hayate(hayate_command, place) -> Iterator[TlsHayate]:
    with TlsHayate(text(place, place / "site", top='metrics = "127.0.0.1:{metrics}"'), {**ports(), "metrics": free_port()}) as running:
        yield running


@pytest.fixture
def mark(place) -> Iterator:
    """Files that scripts wait for and leave."""
    made: list[pathlib.Path] = []

    def one(name: str) -> pathlib.Path:
        made.append(place / "marks" / name)
        return made[-1]

    yield one
    for path in made:
        path.unlink(missing_ok=True)


def client(server: TlsHayate, place: pathlib.Path, **more) -> Http3:
    return Http3(server.ports["tls"], authority=place / "one.pem", **more)


def test_scripts_see_what_nginx_shows_them(hayate, place) -> None:
    with client(hayate, place) as one:
        answer = one.get("/server.php?a=%3Cb%3E", headers={"cookie": "a=b", "x-own": "1"})
        seen = json.loads(bytes(answer.body))
    assert answer.status == 200 and "date" in answer.headers and "connection" not in answer.headers
    assert seen["SERVER_PROTOCOL"] == "HTTP/3.0" and seen["HTTPS"] == "on" and seen["REQUEST_SCHEME"] == "https"
    assert seen["HTTP_HOST"] == "a.example" and seen["REQUEST_URI"] == "/server.php?a=%3Cb%3E"
    assert seen["SERVER_PORT"] == str(hayate.ports["tls"]) and seen["REMOTE_ADDR"] == "127.0.0.1"
    assert seen["SSL_PROTOCOL"] == "TLSv1.3" and seen["SSL_SERVER_NAME"] == "a.example" and seen["HTTP_COOKIE"] == "a=b"


def test_bodies_both_ways(hayate, place) -> None:
    body = bytes(range(256)) * 8000
    with client(hayate, place) as one:
        for method in ("POST", "PUT"):
            assert one.get("/echo.php", method, body=body).body == body
        # Its length is said, or only its end; and what follows a body (trailers) is passed over.
        assert one.get("/count.php", "POST", {"content-length": "5"}, b"abcde").body == b"5"
        stream = one.begin("/count.php", "POST", end=False)
        one.send(stream, b"abc", end=False)
        assert one.h3
        one.h3.send_headers(stream, [(b"x-after", b"1")], end_stream=True)
        assert one.answer(stream).body == b"3"
        large = one.get("/large.php?mb=20")
        assert len(large.body) == 20 << 20 and large.body[:16] == b"0123456789abcdef"
        assert one.get("/plain.txt").body == b"plain text of thirty-two letters"
        head = one.get("/plain.txt", "HEAD")
        assert head.status == 200 and head.headers["content-length"] == "32" and not head.body
        assert one.get("/nowhere").status == 404
        part = one.get("/plain.txt", headers={"range": "bytes=0-4"})
        assert part.status == 206 and part.body == b"plain"


def test_a_body_is_told_to_come(hayate, place) -> None:
    with client(hayate, place) as one:
        stream = one.begin("/count.php", "POST", {"expect": "100-continue", "content-length": "3"}, end=False)
        one.wait(lambda: one.answers[stream].informational)
        assert one.answers[stream].informational[0][":status"] == "100"
        one.send(stream, b"abc")
        assert one.answer(stream).body == b"3"


def test_many_streams(hayate, place) -> None:
    with client(hayate, place) as one:
        for _ in range(3):
            streams = [one.begin(f"/ok.php?{i}") for i in range(100)]
            assert [bytes(one.answer(stream).body) for stream in streams] == [f"ok {i}".encode() for i in range(100)]


def test_answers_by_tcp_say_that_there_is_http3(hayate, place) -> None:
    said = f'h3=":{hayate.ports["tls"]}"; ma=86400'
    with connect(hayate.ports["tls"], "a.example", context(place / "one.pem")) as tls:
        for path in ("/ok.php", "/plain.txt", "/nowhere"):
            assert get(tls, path)[1]["alt-svc"] == said
    command = ["curl", "-sS", "-i", "--http2", "--cacert", place / "one.pem", "--resolve", f"a.example:{hayate.ports['tls']}:127.0.0.1"]
    done = subprocess.run([*command, f"https://a.example:{hayate.ports['tls']}/ok.php"], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("HTTP/2 200") and f"alt-svc: {said}" in done.stdout
    with socket.create_connection(("127.0.0.1", hayate.port), timeout=60) as plain:
        plain.sendall(b"GET /ok.php HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
        assert b"alt-svc" not in b"".join(iter(lambda: plain.recv(65536), b"")).lower()
    with client(hayate, place) as one:
        assert "alt-svc" not in one.get().headers


def test_it_is_spoken_of_as_an_experiment_and_only_beside_tls(hayate) -> None:
    assert hayate.logged("HTTP/3") and hayate.logged("experimental")
    listen = hayate.status()["listen"]
    assert [word for word in listen if word.startswith("udp:")] == [f"udp:127.0.0.1:{hayate.ports['tls']}"]


def connections(server: TlsHayate) -> int:
    with socket.create_connection(("127.0.0.1", server.ports["metrics"]), timeout=60) as one:
        one.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        said = b"".join(iter(lambda: one.recv(65536), b"")).decode()
    return next(int(line.split()[1]) for line in said.splitlines() if line.startswith("hayate_http3_connections "))


def test_connections_are_counted(hayate, place) -> None:
    assert wait_until(lambda: connections(hayate) == 0, PATIENCE)
    with client(hayate, place) as one, client(hayate, place) as other:
        one.get()
        other.get()
        assert connections(hayate) == 2
    assert wait_until(lambda: connections(hayate) == 0, PATIENCE)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ([("host", "b.example")], 400),
        ([("connection", "close")], 400),
        ([("transfer-encoding", "chunked")], 400),
        ([("te", "gzip")], 400),
        ([("content-length", "1x")], 400),
        ([("content-length", "1"), ("content-length", "2")], 400),
        ([("content-length", "3")], 400),
        ([("x", "y" * 40_000)], 431),
        ([(f"x{i}", "y") for i in range(200)], 431),
        ([("X-Upper", "y")], None),
        ([("bad name", "y")], None),
        ([(":late", "y")], None),
        ([("te", "trailers"), ("host", "a.example"), ("content-length", "0")], 200),
    ],
)
def test_heads_that_are_none(hayate, place, fields, status) -> None:
    with client(hayate, place) as one:
        stream = one.begin(headers=fields, bare=True)
        answer = one.answer(stream)
        # A malformed one is reset; one that can be answered is.
        assert answer.reset == MESSAGE_ERROR if status is None else answer.status == status, answer
        # Others on the connection have nothing to do with it.
        assert one.get().status == 200


@pytest.mark.parametrize(
    ("pseudo", "status"),
    [
        ([*HEAD[:3], (":path", "/" + "x" * 9000)], 414),
        ([*HEAD[:3], (":path", "/%zz")], 400),
        ([HEAD[0], HEAD[1], HEAD[3]], None),
        ([*HEAD[1:]], None),
        ([HEAD[0], HEAD[1], (":authority", ""), HEAD[3]], None),
        ([HEAD[0], HEAD[1], (":authority", "a b"), HEAD[3]], None),
        ([(":method", "CONNECT"), *HEAD[1:], (":protocol", "websocket")], None),
        ([*HEAD[:3], (":path", "nowhere")], None),
    ],
)
def test_pseudo_headers(hayate, place, pseudo, status) -> None:
    with client(hayate, place) as one:
        answer = one.answer(one.begin(pseudo=pseudo, bare=True))
        if status is None:
            assert answer.reset is not None or 400 <= answer.status < 600, answer
        else:
            assert answer.status == status
        assert one.get().status == 200


def test_bodies_that_are_not_what_was_said(hayate, place) -> None:
    with client(hayate, place) as one:
        for length, body in (("3", b"abcd"), ("5", b"abcd")):
            stream = one.begin("/count.php", "POST", {"content-length": length}, end=False)
            one.send(stream, body)
            answer = one.answer(stream)
            assert answer.reset is not None or answer.status == 400, answer
        assert one.get().status == 200


def test_streams_that_are_reset(hayate, place) -> None:
    """While they wait for a worker, while they are answered, while their body comes."""
    with client(hayate, place) as one:
        waiting = [one.begin("/sleep.php?ms=50") for _ in range(40)]
        large = one.begin("/large.php?mb=50")
        one.wait(lambda: one.answers[large].body)
        half = one.begin("/echo.php", "POST", {"content-length": "1000"}, end=False)
        one.send(half, b"x" * 100, end=False)
        for stream in [*waiting[::2], large]:
            if not one.over(stream):
                one.quic.stop_stream(stream, 0x10C)
        one.quic.reset_stream(half, 0x10C)
        one.quic.stop_stream(half, 0x10C)
        one.flush()
        for stream in waiting[1::2]:
            assert one.answer(stream).status == 200
        one.wait(lambda: one.over(large))
        assert one.get().status == 200


def test_a_flood_of_streams_that_are_reset_at_once(hayate, place) -> None:
    with client(hayate, place) as one:
        for _ in range(20):
            for _ in range(50):
                stream = one.begin("/sleep.php?ms=20")
                one.quic.reset_stream(stream, 0x10C)
                one.quic.stop_stream(stream, 0x10C)
            one.flush()
            one.step(0.05)
    with client(hayate, place) as one:
        assert one.get().status == 200


def test_who_reads_slowly_holds_no_worker(hayate, place) -> None:
    with client(hayate, place, max_data=1 << 18, max_stream_data=1 << 17) as slow, client(hayate, place) as other:
        streams = [slow.begin("/large.php?mb=8") for _ in range(4)]
        # Nobody reads: both workers would wait for it.
        for _ in range(4):
            assert other.get("/ok.php?y").body == b"ok y"
        for stream in streams:
            assert len(slow.answer(stream).body) == 8 << 20


def test_who_takes_nothing_is_cut_off(hayate_command, place) -> None:
    config = text(place, place / "site", limits='write_timeout = "2s"', top='metrics = "127.0.0.1:{metrics}"')
    with TlsHayate(config, {**ports(), "metrics": free_port()}) as server:
        with client(server, place, max_data=1 << 16, max_stream_data=1 << 15) as one:
            # It acknowledges, and allows nothing more.
            one.quic._write_connection_limits = lambda *_, **__: None
            one.quic._write_stream_limits = lambda *_, **__: None
            stream = one.begin("/large.php?mb=30")
            one.wait(lambda: one.over(stream))
            assert one.terminated is not None or one.answers[stream].reset is not None
        # The same with an answer that is small enough to be with quinn as a whole.
        with client(server, place, max_data=1 << 14, max_stream_data=1 << 13) as one:
            one.quic._write_connection_limits = lambda *_, **__: None
            one.quic._write_stream_limits = lambda *_, **__: None
            stream = one.begin("/style.css?" + "x" * 10)
            large = one.begin("/large.php?mb=1")
            one.wait(lambda: one.terminated is not None or (one.over(stream) and one.over(large)))
        assert wait_until(lambda: connections(server) == 0, PATIENCE)


def test_who_vanishes_is_forgotten(hayate_command, place) -> None:
    config = text(place, place / "site", idle="2s", top='metrics = "127.0.0.1:{metrics}"')
    with TlsHayate(config, {**ports(), "metrics": free_port()}) as server:
        one = client(server, place)
        with one:
            one.get()
            one.begin("/large.php?mb=50")
            # Nothing is said any more.
            one.terminated = one.terminated or object()  # type: ignore[assignment]
        assert wait_until(lambda: connections(server) == 0, PATIENCE)
        # One that only says that it lives is idle as well.
        with client(server, place) as one:
            one.get()
            deadline = time.monotonic() + PATIENCE
            while one.terminated is None and time.monotonic() < deadline:
                one.quic.send_ping(1)
                one.step(0.2)
            assert one.terminated is not None and one.terminated.error_code == NO_ERROR


def test_who_vanishes_does_not_hold_up_a_stop(hayate_command, place) -> None:
    """With TCP the kernel goes on sending; with QUIC the server has to, and nobody says that there is no client any more."""
    config = text(place, place / "site", idle="600s", top='drain_timeout = "600s"\nmetrics = "127.0.0.1:{metrics}"')
    with TlsHayate(config, {**ports(), "metrics": free_port()}) as server:
        with client(server, place) as one:
            one.get()
            one.begin("/large.php?mb=50")
            one.terminated = one.terminated or object()  # type: ignore[assignment]
        assert connections(server) == 1
        begun = time.monotonic()
        server.stop()
        assert time.monotonic() - begun < PATIENCE


def test_who_is_slow_has_its_answer_while_the_server_stops(hayate_command, place, mark) -> None:
    """A client that waits has nothing to say, and is not gone."""
    config = text(place, place / "site", idle="600s", top='drain_timeout = "600s"')
    with TlsHayate(config, ports()) as server, client(server, place) as one:
        began, go = mark("slow-began"), mark("slow-go")
        stream = one.begin(f"/hold.php?began={began}&go={go}")
        one.wait(began.exists)
        server.process.send_signal(signal.SIGTERM)
        # Longer than a client may be silent that has something to answer.
        until = time.monotonic() + 18
        while time.monotonic() < until:
            one.step(0.1)
        go.touch()
        assert bytes(one.answer(stream).body) == b"held"


def test_a_head_that_does_not_come(hayate, place) -> None:
    with client(hayate, place) as one:
        begun = one.quic.get_next_available_stream_id()
        one.quic.send_stream_data(begun, b"\x01\x80\x00\x10\x00\x00\x00", end_stream=False)
        one.answers[begun] = Answer()
        one.flush()
        assert one.get().status == 200
        one.wait(lambda: one.answers[begun].reset is not None)
        # A frame without end, in small pieces: as much as a head may have, and no more.
        endless = one.quic.get_next_available_stream_id()
        one.answers[endless] = Answer()
        one.quic.send_stream_data(endless, b"\x21\xbf\xff\xff\xff")
        one.flush()
        for _ in range(200):
            if one.over(endless):
                break
            one.quic.send_stream_data(endless, b"x" * 1000)
            one.flush()
            one.step(0.01)
        one.wait(lambda: one.over(endless))
        assert one.get().status == 200


def test_streams_of_the_clients_own_without_end(hayate, place) -> None:
    with client(hayate, place) as one:
        for _ in range(4):
            # Of a kind that nobody knows.
            stream = one.quic.get_next_available_stream_id(is_unidirectional=True)
            one.quic.send_stream_data(stream, b"\x40\x55" + b"x" * 5000)
        one.flush()
        assert one.get().status == 200
        # The control stream has a bound as well.
        assert one.h3 and one.h3._local_control_stream_id is not None
        control = one.h3._local_control_stream_id
        one.quic.send_stream_data(control, b"\x21\xbf\xff\xff\xff" + b"x" * 100_000)
        one.flush()
        one.wait(lambda: one.terminated is not None)
    with client(hayate, place) as one:
        assert one.get().status == 200


def test_a_client_that_says_goodbye_gets_its_answers(hayate, place) -> None:
    with client(hayate, place) as one:
        stream = one.begin("/sleep.php?ms=300")
        assert one.h3 and one.h3._local_control_stream_id is not None
        one.quic.send_stream_data(one.h3._local_control_stream_id, b"\x07\x01\x00")
        one.flush()
        assert one.answer(stream).status == 200
        one.wait(lambda: one.terminated is not None)


def initial(version: int = 1, size: int = 1200, seed: random.Random | None = None) -> bytes:
    """What looks like the first datagram of a handshake, and cannot be decrypted."""
    seed = seed or random.Random(1)
    ids = bytes([8]) + seed.randbytes(8) + bytes([8]) + seed.randbytes(8)
    head = bytes([0xC3]) + struct.pack(">I", version) + ids + (b"\x00" if version == 1 else b"")
    return (head + struct.pack(">H", 0x4000 | (size - len(head) - 2)) + seed.randbytes(size))[:size]


def test_garbage_is_answered_with_nothing_or_little(hayate, place) -> None:
    seed = random.Random(7)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("127.0.0.1", hayate.ports["tls"]))
        sent = 0
        for i in range(3000):
            shapes = [seed.randbytes(seed.randrange(1, 1400)), initial(seed=seed)[: seed.randrange(1, 1200)], initial(seed=seed)]
            datagram = shapes[i % 3]
            sent += len(datagram)
            sock.send(datagram)
        sock.settimeout(0.5)
        back = 0
        try:
            while True:
                back += len(sock.recv(65536))
        except TimeoutError:
            pass
        assert back <= 3 * sent
        # A version that nobody knows is answered with those that are known. A datagram may find the socket still full.
        answers = []

        def answered() -> bool:
            sock.send(initial(version=0x1A2A3A4A))
            with contextlib.suppress(TimeoutError):
                answers.append(sock.recv(65536))
            return bool(answers)

        assert wait_until(answered, PATIENCE)
        (answer,) = answers
        assert answer[0] & 0x80 and answer[1:5] == bytes(4) and struct.pack(">I", 1) in answer
    with client(hayate, place) as one:
        assert one.get().status == 200


def test_ten_thousand_handshakes_that_nobody_ends(hayate, place) -> None:
    """Real first flights, from addresses that never answer: beyond a few they cost an answer each, and who is there comes through."""
    from aioquic.quic.configuration import QuicConfiguration
    from aioquic.quic.connection import QuicConnection

    flights = []
    for _ in range(100):
        quic = QuicConnection(configuration=QuicConfiguration(is_client=True, alpn_protocols=["h3"], server_name="a.example"))
        quic.connect(("127.0.0.1", hayate.ports["tls"]), now=time.time())
        flights.append([data for data, _ in quic.datagrams_to_send(now=time.time())])
    before = memory(hayate.front)
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(100)]
    try:
        # From 100 ports each: to the server these are ten thousand.
        for sock in sockets:
            sock.connect(("127.0.0.1", hayate.ports["tls"]))
            for flight in flights:
                for data in flight:
                    sock.send(data)
        with client(hayate, place) as one:
            assert one.get().status == 200
        assert memory(hayate.front) - before < 64 << 20
        assert connections(hayate) <= 128
    finally:
        for sock in sockets:
            sock.close()


def memory(pid: int) -> int:
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmRSS"))


def test_no_more_connections_than_are_allowed(hayate_command, place) -> None:
    with TlsHayate(text(place, place / "site", limits="connections = 8"), ports()) as server:
        held = []
        try:
            while len(held) < 20:
                one = client(server, place)
                one.wait(lambda one=one: one.h3 is not None or one.terminated is not None)
                held.append(one)
                if one.terminated is not None:
                    # CONNECTION_REFUSED: it may come by TCP.
                    assert one.terminated.error_code == 2
                    break
            assert 1 <= len(held) <= 9
        finally:
            for one in held:
                one.__exit__()

        def again() -> bool:
            one = client(server, place)
            one.wait(lambda: one.h3 is not None or one.terminated is not None)
            with_room = one.terminated is None
            one.__exit__()
            return with_room

        assert wait_until(again, PATIENCE, 0.2)


def test_certificates_change_without_a_restart(hayate_command, place, tmp_path) -> None:
    tmp_path.chmod(0o755)
    self_signed(tmp_path, "one", ["a.example"])
    with TlsHayate(text(tmp_path, place / "site"), ports()) as server:
        with Http3(server.ports["tls"], authority=tmp_path / "one.pem") as before:
            assert before.get().status == 200
            self_signed(tmp_path, "one", ["a.example"])

            def is_new() -> bool:
                with connect(server.ports["tls"], "a.example", context_of_any()) as tls:
                    return serial(tls) == ssl.PEM_cert_to_DER_cert((tmp_path / "one.pem").read_text())

            assert wait_until(is_new, PATIENCE, 0.2)
            with Http3(server.ports["tls"], authority=tmp_path / "one.pem") as after:
                assert after.get().status == 200
            # Who is there stays.
            assert before.get().status == 200


def context_of_any():
    loose = ssl.create_default_context()
    loose.check_hostname, loose.verify_mode = False, ssl.CERT_NONE
    return loose


def test_a_reload_keeps_connections_and_http3_can_be_switched_off(hayate_command, place, mark) -> None:
    config = text(place, place / "site")
    with TlsHayate(config, ports()) as server:
        assert server._config
        with client(server, place) as one:
            assert one.get().status == 200
            assert server.reload().returncode == 0
            assert one.get().status == 200
            began, go = mark("reload-began"), mark("reload-go")
            stream = one.begin(f"/hold.php?began={began}&go={go}")
            one.wait(began.exists)
            text_now = server._config.read_text()
            server._config.write_text(text_now.replace("http3 = true", "http3 = false"))
            assert server.reload().returncode == 0
            # What was begun is finished; then the connection ends, and the port is free.
            go.touch()
            assert one.answer(stream).body == b"held"
            one.wait(lambda: one.terminated is not None)
            assert one.terminated.error_code == NO_ERROR
        with connect(server.ports["tls"], "a.example", context(place / "one.pem")) as tls:
            assert "alt-svc" not in get(tls)[1]

        def is_free() -> bool:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                try:
                    sock.bind(("127.0.0.1", server.ports["tls"]))
                except OSError:
                    return False
                return True

        assert wait_until(is_free, PATIENCE)
        server._config.write_text(text_now)
        assert server.reload().returncode == 0
        with client(server, place) as one:
            assert one.get().status == 200


def test_the_first_who_comes_after_a_reload_gets_what_it_brought(hayate_command, place) -> None:
    with TlsHayate(text(place, place / "site"), ports()) as server:
        with client(server, place) as before:
            assert before.get().status == 200
            text_now = server._config.read_text()
            server._config.write_text(text_now.replace("http3 = true", f'http3 = true\nverify = "required"\nclient_ca = "{place}/one.pem"'))
            assert server.reload().returncode == 0
            first = client(server, place)
            first.wait(lambda: first.h3 is not None or first.terminated is not None)
            if first.h3:
                stream = first.begin()
                first.wait(lambda: first.over(stream))
                assert not first.answers[stream].headers, "it has shown no certificate"
            # TLS' certificate_required (RFC 9001, 4.8).
            assert first.terminated is not None and first.terminated.error_code == 0x100 + 116
            first.__exit__()


def test_who_calls_at_another_address_is_not_told_to_go(hayate_command, place) -> None:
    both = text(place, place / "site").replace('tls = true }, {', 'tls = true }, { address = "127.0.0.2:{tls}", tls = true }, {', 1)
    # One thread has both sockets.
    both = both.replace("front_threads = 2", "front_threads = 1")
    with TlsHayate(both, ports()) as server:
        with client(server, place) as stays, client(server, place, address="127.0.0.2") as goes:
            assert stays.get().status == goes.get().status == 200
            text_now = server._config.read_text()
            server._config.write_text(text_now.replace(f'{{ address = "127.0.0.2:{server.ports["tls"]}", tls = true }}, ', ""))
            assert server._config.read_text() != text_now
            assert server.reload().returncode == 0
            goes.wait(lambda: goes.terminated is not None)
            assert goes.terminated.error_code == NO_ERROR
            for _ in range(3):
                assert stays.get().status == 200
                stays.step(0.5)
            assert stays.terminated is None


def served(server: TlsHayate, place: pathlib.Path) -> bool:
    """Whether HTTP/3 is served now, to somebody new."""
    one = client(server, place)
    try:
        one.wait(lambda: one.h3 is not None or one.terminated is not None)
        return one.terminated is None and one.get().status == 200
    finally:
        one.__exit__()


def test_an_upgrade_finishes_what_was_begun_and_http3_goes_on_after_it(hayate_command, place, mark) -> None:
    with TlsHayate(text(place, place / "site", top='drain_timeout = "60s"'), ports()) as server:
        before = server.front
        with client(server, place) as one, client(server, place) as idle:
            assert one.get().status == 200 and idle.get().status == 200
            began, go = mark("upgrade-began"), mark("upgrade-go")
            stream = one.begin(f"/hold.php?began={began}&go={go}")
            one.wait(began.exists)
            assert server.run("upgrade", timeout=90).returncode == 0
            assert server.front != before
            # By TCP the new front serves; by QUIC nobody is taken while the old one has connections.
            with connect(server.ports["tls"], "a.example", context(place / "one.pem")) as tls:
                assert get(tls)[0] == 200
            assert not served(server, place)
            go.touch()
            assert one.answer(stream).body == b"held"
            one.wait(lambda: one.terminated is not None)
            idle.wait(lambda: idle.terminated is not None)
            assert one.terminated.error_code == NO_ERROR and idle.terminated.error_code == NO_ERROR
        assert wait_until(lambda: served(server, place), PATIENCE, 0.2)


def test_http3_is_switched_off_and_on_again_while_an_old_front_has_connections(hayate_command, place, mark) -> None:
    with TlsHayate(text(place, place / "site", top='drain_timeout = "60s"'), ports()) as server:
        now = server._config.read_text()
        with client(server, place) as one:
            began, go = mark("switched-began"), mark("switched-go")
            stream = one.begin(f"/hold.php?began={began}&go={go}")
            one.wait(began.exists)
            assert server.run("upgrade", timeout=90).returncode == 0
            for http3 in ("false", "true", "false", "true"):
                server._config.write_text(now.replace("http3 = true", f"http3 = {http3}"))
                done = server.reload()
                assert done.returncode == 0, done.stderr
            go.touch()
            assert one.answer(stream).body == b"held"
        assert wait_until(lambda: served(server, place), PATIENCE, 0.2)


def test_after_an_upgrade_http3_does_not_wait_for_slow_clients_of_tcp(hayate_command, place, mark) -> None:
    with TlsHayate(text(place, place / "site", top='drain_timeout = "60s"'), ports()) as server:
        before = server.front
        with client(server, place) as one:
            assert one.get().status == 200
        threads = concurrent.futures.ThreadPoolExecutor(1)
        with threads, connect(server.ports["tls"], "a.example", context(place / "one.pem")) as tls:
            began, go = mark("slow-began"), mark("slow-go")
            slow = threads.submit(get, tls, f"/hold.php?began={began}&go={go}")
            assert wait_until(began.exists, PATIENCE)
            # Once more, so that a master hears of it that was not there when it was said.
            for _ in range(2):
                assert server.run("upgrade", timeout=90).returncode == 0
                assert wait_until(lambda: served(server, place), PATIENCE, 0.2)
            os.kill(before, 0)
            assert server.front != before and not go.exists()
            go.touch()
            assert slow.result()[2] == b"held"


def test_a_front_that_dies_is_missed_at_once(hayate_command, place) -> None:
    with TlsHayate(text(place, place / "site"), ports()) as server:
        with client(server, place) as one:
            assert one.get().status == 200
            front = server.front
            os.kill(front, signal.SIGKILL)
            wait_until(lambda: server.run("status").returncode == 0 and server.front != front, PATIENCE, 0.1)
            # It says something, and hears that nobody knows it: long before it would give up by itself.
            deadline = time.monotonic() + PATIENCE
            number = 0
            while not one.forgotten and time.monotonic() < deadline:
                number += 1
                one.quic.send_ping(number)
                one.step(0.2)
            assert one.forgotten
        with client(server, place) as one:
            assert one.get().status == 200


def test_worker_mode_and_the_access_log(hayate_command, place) -> None:
    worker = place / "worker.php"
    worker.write_text("<?php $n = 0; while (hayate_handle_request(function () use (&$n) { echo $_SERVER['SERVER_PROTOCOL'], ' ', ++$n; }));")
    worker.chmod(0o644)
    log = place / "marks" / "access.log"
    config = text(place, place / "site", top=f'access_log = "{log}"', app=f'worker = "{worker}"')
    with TlsHayate(config, ports(), access_log=None) as server, client(server, place) as one:
        # Rewound after each: what the boot has counted, and one.
        answers = {bytes(one.get("/ok.php").body) for _ in range(3)}
        assert len(answers) == 1 and answers.pop().startswith(b"HTTP/3.0 ")
        assert wait_until(lambda: log.exists() and log.read_text().count('"GET /ok.php HTTP/3.0" 200') == 3, PATIENCE), log.read_text()


def test_an_idle_server_sleeps(hayate_command, place) -> None:
    def switches(pid: int) -> dict[str, int]:
        counted = {}
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            if (task / "comm").read_text().startswith("front-"):
                lines = (task / "status").read_text().splitlines()
                counted[task.name] = sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)
        return counted

    with TlsHayate(text(place, place / "site"), ports()) as server:
        front = server.front
        with client(server, place) as one:
            one.get()

        def sleeps() -> bool:
            before = switches(front)
            time.sleep(2)
            return len(before) == 2 and switches(front) == before

        # The closed connection is remembered for a moment (three of its longest round trips).
        assert wait_until(sleeps, PATIENCE)


def test_a_server_that_stops_says_so(hayate_command, place, mark) -> None:
    with TlsHayate(text(place, place / "site"), ports()) as server, client(server, place) as one, client(server, place) as idle:
        assert idle.get().status == 200
        began, go = mark("stop-began"), mark("stop-go")
        stream = one.begin(f"/hold.php?began={began}&go={go}")
        one.wait(began.exists)
        os.kill(server.pid, signal.SIGTERM)
        idle.wait(lambda: idle.terminated is not None)
        go.touch()
        assert one.answer(stream).body == b"held"
        one.wait(lambda: one.terminated is not None)
        assert one.terminated.error_code == NO_ERROR and idle.terminated.error_code == NO_ERROR
        # Not because it was given up.
        assert "imeout" not in one.terminated.reason_phrase + idle.terminated.reason_phrase
