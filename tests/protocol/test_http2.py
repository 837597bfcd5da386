"""HTTP/2 with prior knowledge, as curl speaks it: what scripts see, bodies both ways, and that HTTP/1 stays on the same port."""

from __future__ import annotations

import json
import pathlib
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Iterator

import pytest

from lib import site
from lib.process import wait_until
from lib.servers import Hayate, free_port
from lib.tls import TlsHayate, self_signed

from .h2 import DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, WINDOW_UPDATE, Raw, frame

pytestmark = pytest.mark.plain("it is about HTTP/2 without TLS, by prior knowledge; test_h2.py is over TLS")


@pytest.fixture(scope="module")
def server(hayate_command, tmp_path_factory) -> Iterator[Hayate]:
    root = site.make(tmp_path_factory.mktemp("http2"))
    with Hayate(config=f'http2_prior_knowledge = true\n[[app]]\nroot = "{root}"\n', workers=2) as hayate:
        yield hayate


def curl(server: Hayate, path: str, *args: str, version: str = "--http2-prior-knowledge") -> bytes:
    command = ["curl", "-sS", "--max-time", "60", version, *args, server.url + path]
    return subprocess.run(command, check=True, capture_output=True).stdout


def test_scripts_see_the_protocol_and_the_host_of_the_authority(server) -> None:
    seen = json.loads(curl(server, "/server.php?a=%3Cb%3E", "-H", "Cookie: a=b; c=d"))
    assert seen["SERVER_PROTOCOL"] == "HTTP/2.0" and seen["HTTP_HOST"] == f"127.0.0.1:{server.port}"
    assert seen["REQUEST_URI"] == "/server.php?a=%3Cb%3E" and seen["HTTP_COOKIE"] == "a=b; c=d"
    assert "HTTPS" not in seen
    assert json.loads(curl(server, "/server.php", version="--http1.1"))["SERVER_PROTOCOL"] == "HTTP/1.1"


def test_bodies_both_ways(server, tmp_path: pathlib.Path) -> None:
    body = tmp_path / "body"
    body.write_bytes(bytes(range(256)) * 8000)
    for method in ("POST", "PUT"):
        assert curl(server, "/echo.php", "-X", method, "--data-binary", f"@{body}") == body.read_bytes()
    assert len(curl(server, "/large.php?mb=30")) == 30 << 20
    assert curl(server, "/plain.txt").startswith(b"plain text")
    head = curl(server, "/plain.txt", "-I").decode().lower()
    assert head.startswith("http/2 200") and "content-length: 32" in head and "connection:" not in head


@pytest.mark.skipif(shutil.which("h2load") is None, reason="h2load (nghttp2-client) is not installed")
def test_many_streams_on_few_connections(server) -> None:
    command = ["h2load", "-n", "1000", "-c", "4", "-m", "100", "-T", "60", server.url + "/ok.php?x"]
    text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    assert "1000 succeeded, 0 failed, 0 errored" in text, text


def test_errors_are_answers(server) -> None:
    status = ("-o", "/dev/null", "-w", "%{http_code}")
    assert curl(server, "/%zz", *status) == b"400"
    assert curl(server, "/nowhere", *status) == b"404"


def test_without_the_key_there_is_no_http2(hayate_command, tmp_path) -> None:
    root = site.make(tmp_path)
    with Hayate(root, workers=1) as server:
        done = subprocess.run(
            ["curl", "-sS", "--max-time", "20", "--http2-prior-knowledge", server.url + "/ok.php"], capture_output=True, check=False
        )
        assert done.returncode != 0


def test_a_preface_that_stops_and_ends(server) -> None:
    """The rest cannot come any more: the connection ends at once. A socket whose end has come stays readable, and was looked at without end."""
    for length in (1, 8, len(PREFACE) - 1):
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as one:
            one.sendall(PREFACE[:length])
            time.sleep(0.05)
            one.shutdown(socket.SHUT_WR)
            one.settimeout(20)
            # idle_timeout is far longer.
            assert not one.recv(100).startswith(b"HTTP/1.1 200")


WIDE = struct.pack(">HI", 4, 2**31 - 1), frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 2**31 - 1 - 65535))
ANSWERS, SIZE = 100, 250_000


def ask_for_much(server: Hayate) -> Raw:
    """Has large windows, so that all answers are handed over at once, and wait for the connection."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
    sock.connect(("127.0.0.1", server.port))
    one = Raw(sock, WIDE[0])
    heads = (frame(HEADERS, END_STREAM | END_HEADERS, 1 + 2 * i, one.head("/much.bin")) for i in range(ANSWERS))
    one.send(WIDE[1] + b"".join(heads))
    return one


def test_who_reads_slowly_is_not_idle(hayate_command, tmp_path) -> None:
    """Answers that are whole but not yet with the client: while it takes some of them, no time limit passes."""
    root = site.make(tmp_path)
    (root / "much.bin").write_bytes(b"x" * SIZE)
    config = f'http2_prior_knowledge = true\n[limits]\nidle_timeout = "1s"\nwrite_timeout = "5s"\n[[app]]\nroot = "{root}"\n'
    with Hayate(config=config, workers=1) as server:
        one = ask_for_much(server)
        received, paused, ended = 0, 0, 0
        while ended < ANSWERS:
            got = one.receive()
            assert got is not None, f"cut off after {received} of {ANSWERS * SIZE} bytes"
            if got[0] == DATA:
                received += len(got[3])
                ended += got[1] & END_STREAM
            if received > paused + 250_000:
                paused = received
                time.sleep(0.04)
        assert received == ANSWERS * SIZE
        # Then it is idle.
        while one.receive() is not None:
            pass
        # Who takes nothing has the time of write_timeout.
        two = ask_for_much(server)
        assert wait_until(lambda: server.status()["connections"] == 0, interval=0.2)
        two.sock.close()


def test_a_client_that_sends_no_more_gets_its_answers(server) -> None:
    """shutdown(2) ends the sending side only. The answers are longer in coming than the client is asked for."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as sock:
        one = Raw(sock)
        for stream in (1, 3):
            one.request(stream, "/sleep.php?ms=1500")
        sock.shutdown(socket.SHUT_WR)
        statuses, ended = [], 0
        while (got := one.receive()) is not None:
            if got[0] == HEADERS:
                statuses.append(dict(one.decoder.decode(got[3]))[":status"])
            ended += got[0] == DATA and bool(got[1] & END_STREAM)
        # The connection ends by itself once all is sent.
        assert statuses == ["200", "200"] and ended == 2


def test_a_cookie_in_crumbs_is_one_header(server) -> None:
    """Browsers send each of many cookies by itself (RFC 9113, 8.2.3)."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as sock:
        client = Raw(sock)
        client.request(1, "/ok.php", *(("cookie", f"c{n}=1") for n in range(250)))
        assert client.status(1) == "200"
        client.request(3, "/ok.php", *((f"x-{n}", "1") for n in range(250)))
        assert client.status(3) == "431"


def test_a_body_that_cannot_come_any_more(server) -> None:
    """Nobody waits body_timeout for it, which is far longer."""
    for method in ("POST", "PUT"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as sock:
            one = Raw(sock)
            one.request(1, "/count.php", method=method, end=False)
            one.send(frame(DATA, 0, 1, b"half of it"))
            sock.shutdown(socket.SHUT_WR)
            while one.receive() is not None:
                pass


def test_a_client_that_leaves_is_noticed(server, tmp_path) -> None:
    """Its script learns of it, although a client that has left looks like one that sends no more."""
    tmp_path.chmod(0o777)
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as sock:
        one = Raw(sock)
        one.request(1, f"/abort.php?file={tmp_path}/seen")
        one.until(lambda kind, *_: kind == DATA)
    assert wait_until((tmp_path / "seen").exists)
    assert wait_until(lambda: (tmp_path / "seen").read_text() == "aborted")


def test_curl_side_by_side(hayate_command, tmp_path) -> None:
    """By TLS. With prior knowledge curl 7.88 fails at its second transfer by itself, with nginx as with Hayate."""
    root = site.make(tmp_path)
    self_signed(tmp_path, "one", ["a.example"])
    config = (
        'listen = ["127.0.0.1:{port}", { address = "127.0.0.1:{tls}", tls = true }]\n'
        f'[tls]\ncertificates = [{{ certificate = "{tmp_path}/one.pem", key = "{tmp_path}/one.key" }}]\n[[app]]\nroot = "{root}"\n'
    )
    with TlsHayate(config, {"port": free_port(), "tls": free_port()}, workers=2) as server:
        command = ["curl", "-sSkZ", "--max-time", "60", "--http2", "-w", "%{http_version} %{http_code}\n"]
        for n in range(20):
            command += [f"https://127.0.0.1:{server.ports['tls']}/ok.php?{n}", "-o", "/dev/null"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == ["2 200"] * 20, done
