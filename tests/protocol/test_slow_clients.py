"""Clients that send or read slowly: they do not hold up others, and get what is theirs all the same."""

from __future__ import annotations

import hashlib
import pathlib
import shutil
import socket
from collections.abc import Callable, Iterator

import pytest
import requests

from lib import over, site
from lib.process import temporary_directory
from lib.servers import ROOT, Hayate

SLOW = 200
FORM = "Content-Type: application/x-www-form-urlencoded\r\n"


@pytest.fixture(scope="module")
def server(hayate_command, tmp_path_factory) -> Iterator[Hayate]:
    root = site.make(tmp_path_factory.mktemp("slow"))
    (root / "sum.php").write_text(
        "<?php $all = file_get_contents('php://input');"
        "echo $_SERVER['CONTENT_LENGTH'], ' ', strlen($all), ' ', md5($all), ' ', strlen($_POST['a'] ?? '');"
    )
    with Hayate(root, workers=2) as hayate:
        yield hayate


def connect(server: Hayate, *, buffer: int = 0) -> socket.socket:
    return over.connect(("127.0.0.1", server.port), receive_buffer=buffer, timeout=20)


def rest(s: socket.socket) -> bytes:
    """The body of the answer, which ends with the connection."""
    received = b""
    while chunk := s.recv(1 << 20):
        received += chunk
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), head
    return body


def others_are_served(server: Hayate) -> None:
    for i in range(10):
        assert requests.get(f"{server.url}/ok.php?{i}", timeout=30).text == f"ok {i}"


def sends(kind: str, size: int, sent: int) -> Callable[[socket.socket], bytes]:
    body = b"a=" + b"x" * (size - 2)
    head = f"POST /sum.php HTTP/1.1\r\nHost: a\r\n{kind}Content-Length: {size}\r\nConnection: close\r\n\r\n"

    def begin(s: socket.socket) -> bytes:
        s.sendall(head.encode() + body[:sent])
        return body[sent:]

    return begin


@pytest.mark.parametrize(
    ("kind", "size", "sent"),
    [
        pytest.param("", 1000, 1, id="small"),
        pytest.param("", 300_000, 100_000, id="large"),
        pytest.param(FORM, 1000, 1, id="small form"),
        pytest.param(FORM, 300_000, 100_000, id="large form"),
    ],
)
def test_clients_that_send_slowly(server, kind, size, sent) -> None:
    begin = sends(kind, size, sent)
    slow = [connect(server) for _ in range(SLOW)]
    left = [begin(s) for s in slow][0]
    others_are_served(server)
    want = f"{size} {size} {hashlib.md5(b'a=' + b'x' * (size - 2)).hexdigest()} {size - 2 if kind else 0}"
    for s in slow[: SLOW // 4]:
        s.sendall(left)
    for s in slow[: SLOW // 4]:
        assert rest(s).decode() == want
    for s in slow:
        s.close()
    others_are_served(server)


def test_clients_that_read_slowly(server) -> None:
    slow = [connect(server, buffer=4096) for _ in range(20)]
    for s in slow:
        s.sendall(b"GET /large.php?mb=6 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    others_are_served(server)
    want = b"0123456789abcdef" * (6 << 16)
    for s in slow[:5]:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        body = rest(s)
        # Chunked: what is between the sizes.
        assert len(body) > len(want) and body.endswith(b"0\r\n\r\n")
        assert unchunked(body) == want
    for s in slow:
        s.close()


def unchunked(body: bytes) -> bytes:
    parts, at = [], 0
    while True:
        line = body.index(b"\r\n", at)
        size = int(body[at:line], 16)
        parts.append(body[line + 2 : line + 2 + size])
        at = line + 2 + size + 2
        if size == 0:
            return b"".join(parts)


@pytest.fixture(scope="module")
def streaming(hayate_command, tmp_path_factory) -> Iterator[Hayate]:
    """Its scripts may read while clients send."""
    root = site.make(tmp_path_factory.mktemp("streaming"))
    with Hayate(config=f'[[app]]\nroot = "{root}"\nworkers = 2\nrequest_buffering = false\n') as hayate:
        hayate.root = root
        yield hayate


def test_a_script_may_read_while_the_client_still_sends(streaming) -> None:
    # Not the body of a POST, which PHP reads to its end first; and in blocks of 8192 bytes, since PHP takes less for
    # the end.
    (streaming.root / "talk.php").write_text(
        "<?php while (ob_get_level()) { ob_end_clean(); } $in = fopen('php://input', 'rb');"
        "while (($block = fread($in, 8192)) !== '') { echo strtoupper($block[0]), strlen($block), ';'; flush(); }"
    )
    with connect(streaming) as s:
        s.sendall(b"PUT /talk.php HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        for letter in (b"a", b"b", b"c"):
            s.sendall(b"2000\r\n%s\r\n" % (letter * 8192))
            received = b""
            while letter.upper() + b"8192;" not in received:
                received += s.recv(65536)
        s.sendall(b"0\r\n\r\n")


def test_a_client_that_reads_only_when_it_has_sent_all(server) -> None:
    body = b"0123456789abcdef" * (20 << 16)
    with connect(server) as s:
        s.sendall(b"PUT /echo.php HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body))
        s.sendall(body)
        assert unchunked(rest(s)) == body


def test_a_whole_body_goes_to_a_second_worker_when_the_first_dies(hayate_command, tmp_path) -> None:
    root = site.make(tmp_path)
    with Hayate(config=f'[[app]]\nroot = "{root}"\nretry = "idempotent"\n', workers=2) as server:
        retried(server, tmp_path / "crashed")


def retried(server: Hayate, marker: pathlib.Path) -> None:
    url = f"{server.url}/crash_once.php?file={marker}"
    assert requests.put(url, data=b"x" * 20_000, timeout=30).text == "second"
    marker.unlink()
    assert requests.post(url, data=b"x" * 20_000, timeout=30).status_code == 502


def test_without_a_place_for_temporary_files_small_bodies_go_on_and_the_log_says_why(hayate_command, tmp_path) -> None:
    root = site.make(tmp_path)
    missing = tmp_path / "missing"
    with Hayate(root, workers=1, env={"TMPDIR": str(missing)}) as server:
        assert server.logged(f"no temporary file can be made in {missing}")
        assert requests.post(server.url + "/count.php", data=b"x" * 1000, timeout=30).text == "1000"
        refused = requests.post(server.url + "/count.php", data=b"x" * 100_000, timeout=30)
        assert refused.status_code == 500 and str(missing) not in refused.text
        assert requests.get(server.url + "/ok.php?on", timeout=30).text == "ok on"


@pytest.mark.skipif(not ROOT, reason="only root starts a server whose user may not write where it was started")
def test_a_place_for_temporary_files_that_is_named_as_nothing_is_none(hayate_command) -> None:
    """The fault: they were made in the working directory, and where that could not be written large uploads got 500."""
    place = temporary_directory("nowhere")
    with Hayate(site.make(place), workers=1, user="www-data", env={"TMPDIR": ""}) as server:
        assert requests.post(server.url + "/count.php", data=b"x" * 100_000, timeout=30).text == "100000"
        assert "no temporary file" not in server.log()
    shutil.rmtree(place)
