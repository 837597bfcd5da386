"""How requests and answers end: lengths that are wrong, clients that send no more, clients that are gone."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator

import pytest

from lib import client, site
from lib.process import wait_until
from lib.servers import Hayate


@pytest.fixture(scope="module", params=["tcp", "unix"])
def server(request, hayate_command, tmp_path_factory) -> Iterator[Hayate]:
    directory = tmp_path_factory.mktemp("ends")
    root = site.make(directory)
    (root / "length.php").write_text(
        "<?php header('Content-Length: ' . $_GET['say']); echo 'first'; if (isset($_GET['flush'])) { flush(); usleep(50000); } echo 'second';"
    )
    (root / "wait.php").write_text(
        "<?php ignore_user_abort(true); set_time_limit(0); $until = microtime(true) + $_GET['s'];"
        "while (microtime(true) < $until && !file_exists($_GET['go'] ?? '')) { usleep(10000); clearstatcache(); } echo 'waited';"
    )
    unix = directory / "front.sock"
    with Hayate(root, workers=1, args=["--listen", f"unix:{unix}"], access_log=str(directory / "access.log")) as hayate:
        hayate.where = str(unix) if request.param == "unix" else ("127.0.0.1", hayate.port)
        hayate.access = directory / "access.log"
        yield hayate


def connect(server: Hayate) -> socket.socket:
    s = socket.socket(socket.AF_UNIX if isinstance(server.where, str) else socket.AF_INET)
    s.settimeout(60)
    s.connect(server.where)
    return s


def rest(s: socket.socket) -> bytes:
    received = b""
    while piece := s.recv(65536):
        received += piece
    return received


def get(path: str, *, version: str = "1.1", close: bool = False) -> bytes:
    return f"GET {path} HTTP/{version}\r\nHost: a\r\n{'Connection: close' if close else 'X: y'}\r\n\r\n".encode()


@pytest.mark.parametrize("flush", ["", "&flush"])
def test_c16_a_body_shorter_than_its_content_length_is_seen_to_be_short(server, flush) -> None:
    # A kept connection: its end is what shows the loss.
    answer = client.exchange(server.where, get(f"/length.php?say=15{flush}"))
    assert (answer.status, answer.header("Content-Length"), answer.body) == (200, "15", b"firstsecond")
    assert not answer.complete
    assert server.logged("4 bytes fewer than the 15 of its Content-Length")


@pytest.mark.parametrize("flush", ["", "&flush"])
def test_c16_a_body_longer_than_its_content_length_is_cut_to_it(server, flush) -> None:
    with connect(server) as s:
        s.sendall(get(f"/length.php?say=7{flush}") + get("/ok.php?next", close=True))
        first, second = rest(s).split(b"HTTP/1.1 200 OK\r\n")[1:]
    assert b"Content-Length: 7\r\n" in first and first.endswith(b"\r\n\r\nfirstse")
    assert second.endswith(b"ok next")
    assert server.logged("more than the 7 bytes of its Content-Length")


@pytest.mark.parametrize("version", ["1.1", "1.0"])
@pytest.mark.parametrize("path", ["/ok.php?x", "/plain.txt", "/wait.php?s=0.2", "/flush.php", "/large.php?mb=8"])
def test_c16_a_client_that_sends_no_more_gets_its_answer(server, path, version) -> None:
    with connect(server) as s:
        s.sendall(get(path, version=version))
        s.shutdown(socket.SHUT_WR)
        time.sleep(0.05)
        answer = rest(s)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n" if version == "1.1" else b"HTTP/1.0 200 OK\r\n"), answer[:200]
    ends = {"/o": b"ok x", "/p": b"letters", "/w": b"waited", "/f": b"second\n", "/l": b"cdef"}
    assert answer.removesuffix(b"\r\n0\r\n\r\n").rstrip(b"\r\n").endswith(ends[path[:2]].rstrip(b"\n"))
    if path.startswith("/large"):
        assert len(answer) > 8 << 20


def test_c16_a_client_that_sends_no_more_gets_all_its_pipelined_answers(server) -> None:
    with connect(server) as s:
        s.sendall(b"".join(get(f"/ok.php?{i}") for i in range(3)) + get("/wait.php?s=0.1") + get("/plain.txt"))
        s.shutdown(socket.SHUT_WR)
        answer = rest(s)
    assert answer.count(b"HTTP/1.1 200 OK") == 5
    assert [answer.index(b"ok %d" % i) for i in range(3)] == sorted(answer.index(b"ok %d" % i) for i in range(3))
    assert b"waited" in answer and answer.endswith(b"letters")


def test_c16_half_a_head_after_a_request_does_not_cost_its_answer(server) -> None:
    with connect(server) as s:
        s.sendall(get("/wait.php?s=0.2") + b"GET /half HTTP/1.1\r\nHo")
        s.shutdown(socket.SHUT_WR)
        answer = rest(s)
    assert answer.count(b"HTTP/1.1 200 OK") == 1 and b"waited" in answer


def test_c16_a_client_that_waits_long_is_asked_for_once(server, tmp_path) -> None:
    with connect(server) as s:
        s.sendall(get(f"/wait.php?s=600&go={tmp_path}/go"))
        s.shutdown(socket.SHUT_WR)
        asked = s.recv(100)
        # As long as it took, and more.
        time.sleep(1.5)
        (tmp_path / "go").touch()
        answer = asked + rest(s)
    interim, _, final = answer.rpartition(b"HTTP/1.1 200 OK")
    assert final.endswith(b"waited") and interim == b"HTTP/1.1 100 Continue\r\n\r\n"


def test_c16_a_client_that_is_gone_is_noticed_long_before_the_answer(server) -> None:
    path = f"/wait.php?s=600&of={id(server)}"
    with connect(server) as s:
        s.sendall(get(path))
        time.sleep(0.1)
    # nginx's status for a client that left.
    assert wait_until(lambda: any(path in line and " 499 " in line for line in lines(server)))
    # Its script runs on, as php-fpm's does until it writes something.
    worker = server.status()["apps"][0]["workers"][0]["pid"]
    os.kill(worker, signal.SIGKILL)


def lines(server: Hayate) -> list[str]:
    return server.access.read_text().splitlines() if server.access.exists() else []


def test_c16_the_date_is_there_once(server) -> None:
    for path in ("/ok.php", "/plain.txt", "/nowhere"):
        answer = client.exchange(server.where, get(path, close=True))
        assert len(answer.values("Date")) == 1
    refused = client.exchange(server.where, b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n")
    assert refused.status == 400 and len(refused.values("Date")) == 1
