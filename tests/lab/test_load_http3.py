"""`hayate-lab load --http3`, against Hayate: h3 and quinn above, our own frames on quinn below."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator

import pytest

from generator import generator, load, run
from lib import site
from lib.process import temporary_directory, wait_until
from lib.servers import free_port
from lib.tls import TlsHayate, issued, self_signed

CONFIG = """
listen = ["127.0.0.1:{port}", { address = "127.0.0.1:{tls}", tls = true }]
access_log = "DIR/access.log"
[tls]
http3 = true
certificates = [{ certificate = "DIR/localhost.pem", key = "DIR/localhost.key" }]
[limits]
http2_streams = 20
[[app]]
root = "ROOT"
workers = 2
"""
SAYS = """<?php
echo "$_SERVER[REQUEST_METHOD] $_SERVER[SERVER_PROTOCOL] $_SERVER[HTTP_HOST] ", $_SERVER['HTTP_X_TEST'] ?? '', ' ', file_get_contents('php://input');
"""


class Quic(TlsHayate):
    """`https` is its address, with a certificate that `authority` vouches for."""

    authority: pathlib.Path
    directory: pathlib.Path

    @property
    def https(self) -> str:
        return f"https://localhost:{self.ports['tls']}"

    def answered(self, target: str) -> int:
        """Answers to it over HTTP/3, as the access log says."""
        return sum(target in line and "HTTP/3" in line for line in (self.directory / "access.log").read_text().splitlines())


@pytest.fixture(scope="module")
def server() -> Iterator[Quic]:
    generator()
    directory = temporary_directory("http3-load")
    authority, _ = self_signed(directory, "authority", ["authority"])
    issued(directory, "localhost", ["localhost"], "authority", "serverAuth")
    root = site.make(directory)
    (root / "file").write_bytes(b"0123456789" * 10_000)
    (root / "says.php").write_text(SAYS)
    config = CONFIG.replace("DIR", str(directory)).replace("ROOT", str(root))
    with Quic(config, {"port": free_port(), "tls": free_port()}, access_log=None) as running:
        running.authority, running.directory = authority, directory
        yield running
        # The generator has said that it leaves, also with the last answers: else connections would be kept for quinn's 30 s.
        assert wait_until(lambda: running.status()["connections"] == 0, timeout=15)


def test_streams_in_a_closed_loop(server: Quic) -> None:
    report = load(f"{server.https}/says.php?loop", "-n", "2000", "-c", "2", "--http3", "--streams", "20", "--ca-file", str(server.authority),
                  "--expect-match", r"^GET HTTP/3\.0 localhost:[0-9]+  $")  # fmt: skip
    assert (report["total"]["ok"], report["total"]["errors"]) == (2000, {})
    assert report["health"]["connections_opened"] == report["health"]["connections_max"] == report["health"]["handshakes"] == 2
    assert report["protocol"] == {"http": "HTTP/3", "streams": 20, "tls": "TLSv1_3, by QUIC"}
    assert report["total"]["bytes_received"] > 2000 * 30 and report["total"]["bytes_sent"] > 2000 * 10
    # The server has seen them as well.
    assert wait_until(lambda: server.answered("/says.php?loop") == 2000, timeout=60)


def test_bodies_go_both_ways(server: Quic) -> None:
    report = load(f"{server.https}/file", "-n", "100", "-c", "1", "--http3", "--streams", "10", "--insecure",
                  "--expect-match", "^(0123456789){10000}$")  # fmt: skip
    assert report["total"]["ok"] == 100 and report["total"]["bytes_received"] > 100 * 100_000
    echo = [f"{server.https}/says.php", "-n", "20", "-c", "1", "--http3", "--streams", "4", "--insecure"]
    assert load(*echo, "--body", "a=1&b=2", "-H", "X-Test: yes", "--expect-match", "^POST HTTP/3.0 [a-z:0-9]+ yes a=1&b=2$")["total"]["ok"] == 20


def test_more_streams_than_the_server_allows_wait(server: Quic) -> None:
    report = load(f"{server.https}/ok.php?x", "-n", "500", "-c", "1", "--http3", "--streams", "60", "--insecure", "--expect-body", "ok x")
    assert (report["total"]["ok"], report["health"]["connections_opened"]) == (500, 1)


def test_by_a_schedule_and_as_virtual_users(server: Quic) -> None:
    report = load(f"{server.https}/plain.txt", "--schedule", "const(200, 1s)", "-c", "4", "--generator-threads", "1", "--http3",
                  "--streams", "20", "--insecure")  # fmt: skip
    assert report["total"]["ok"] == report["plan"]["shots"] == 200
    report = load(f"{server.https}/plain.txt", "--threads", "20", "--loops", "10", "--http3", "--streams", "10", "--generator-threads", "1", "--insecure")
    assert (report["total"]["ok"], report["health"]["connections_opened"]) == (200, 2)


def test_handshakes_as_a_rate_are_full_ones(server: Quic) -> None:
    each = [f"{server.https}/plain.txt", "-n", "40", "-c", "2", "--http3", "--insecure", "--no-keepalive"]
    health = load(*each)["health"]
    assert (health["connections_opened"], health["handshakes"], health["handshakes_resumed"]) == (40, 40, 0)
    text, _ = run(*each)
    assert re.search(r"^TLS +40 handshakes, [\d.,]+/s, 0 of them resumed a session; TLSv1_3, by QUIC$", text, re.M)


def test_whom_nobody_vouches_for_and_who_does_not_listen(server: Quic) -> None:
    report = load(server.https, "-n", "5", "-c", "1", "--http3", status=1)
    assert report["total"]["errors"] == {"tls": 5} and "UnknownIssuer" in report["warnings"][0]
    # Nobody listens there by UDP, or nobody who speaks HTTP/3.
    nobody = f"https://localhost:{free_port()}/"
    report = load(nobody, "-n", "2", "-c", "1", "--http3", "--insecure", "--timeout", "1s", status=1)
    assert report["total"]["ok"] == 0 and set(report["total"]["errors"]) <= {"connect", "connect_timeout"}


def test_what_makes_no_sense_is_refused(server: Quic) -> None:
    for arguments, reason in [
        ([server.url, "--http3"], "HTTP/3 is always over TLS"),
        ([server.https, "--http3", "--http2"], "--http2"),
        ([server.https, "--http3", "--client", "hyper"], "--client"),
        ([server.https, "--streams", "3"], "--http3"),
    ]:
        _, errors = run(*arguments, status=2)
        assert reason in errors, errors
