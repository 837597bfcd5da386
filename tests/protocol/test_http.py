"""HTTP as clients meet it: connections, bodies both ways, static files."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import os
import pathlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import requests

from lib import over, site
from lib.process import wait_until
from lib.servers import Hayate


@pytest.fixture(scope="module")
def server(hayate_command, tmp_path_factory) -> Iterator[Hayate]:
    root = site.make(tmp_path_factory.mktemp("http"))
    (root / "style.css.gz").write_bytes(gzip.compress((root / "style.css").read_bytes()))
    with Hayate(root, workers="1-4", ini={"upload_max_filesize": "3G", "post_max_size": "3G"}, args=[]) as hayate:
        yield hayate


def raw(server: Hayate, data: bytes, timeout: float = 60) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), timeout=timeout) as s:
        s.sendall(data)
        received = b""
        while chunk := s.recv(65536):
            received += chunk
        return received


def test_keep_alive(server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    for i in range(5):
        connection.request("GET", f"/ok.php?{i}")
        if i == 0:
            first = connection.sock.getsockname()
        assert connection.getresponse().read() == f"ok {i}".encode()
        assert connection.sock.getsockname() == first


def test_pipelined_requests_are_answered_in_order(server) -> None:
    data = b"".join(b"GET /ok.php?%d HTTP/1.1\r\nHost: a\r\n\r\n" % i for i in range(20))
    data += b"GET /ok.php?last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    answer = raw(server, data)
    positions = [answer.index(b"ok %d" % i) for i in range(20)] + [answer.index(b"ok last")]
    assert positions == sorted(positions)


def test_http_1_0(server) -> None:
    answer = raw(server, b"GET /ok.php?x HTTP/1.0\r\n\r\n")
    assert b"ok x" in answer and b"chunked" not in answer.lower()
    kept = raw(
        server,
        b"GET /ok.php?1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /ok.php?2 HTTP/1.0\r\n\r\n",
    )
    assert b"ok 1" in kept and b"ok 2" in kept


def test_head_has_no_body(server) -> None:
    for path in ("/ok.php", "/plain.txt"):
        answer = requests.head(server.url + path, timeout=60)
        assert answer.status_code == 200 and answer.content == b""
    assert requests.head(server.url + "/plain.txt", timeout=60).headers["Content-Length"] == "32"


def test_expect_100_continue(server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as s:
        s.sendall(b"POST /echo.php HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n")
        assert s.recv(100).startswith(b"HTTP/1.1 100")
        s.sendall(b"hello")
        answer = b""
        while chunk := s.recv(4096):
            answer += chunk
        assert answer.endswith(b"hello")


def test_chunked_request_bodies(server) -> None:
    def parts() -> Iterator[bytes]:
        for i in range(50):
            yield b"%d," % i * 100

    answer = requests.post(server.url + "/echo.php", data=parts(), timeout=60)
    assert answer.content == b"".join(b"%d," % i * 100 for i in range(50))


def test_small_answers_have_a_length_and_flushed_ones_arrive_early(server, tmp_path) -> None:
    assert requests.get(server.url + "/ok.php?x", timeout=60).headers["Content-Length"] == "4"
    go = tmp_path / "go"
    answer = requests.get(f"{server.url}/flush.php?go={go}", stream=True, timeout=60)
    lines = answer.iter_lines(chunk_size=None)
    assert next(lines) == b"first"
    go.touch()
    assert next(lines) == b"second"


def peak(pids: list[int]) -> int:
    """Bytes of anonymous memory of these processes now."""
    total = 0
    for pid in pids:
        # Workers come and go.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("RssAnon:"):
                    total += int(line.split()[1]) * 1024
    return total


def processes(server: Hayate) -> list[int]:
    pids, todo = [], [server.pid]
    while todo:
        pid = todo.pop()
        pids.append(pid)
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
                todo += [int(child) for child in (task / "children").read_text().split()]
    return pids


def watch(server: Hayate, run) -> int:
    """Runs `run` and returns by how many bytes the server's anonymous memory rose above where it began."""
    before, high, done = peak(processes(server)), 0, threading.Event()

    def sample() -> None:
        nonlocal high
        while not done.is_set():
            high = max(high, peak(processes(server)))
            time.sleep(0.05)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        run()
    finally:
        done.set()
        thread.join()
    return high - before


GIB = 1 << 30


def test_a_gibibyte_down_leaves_memory_flat(server) -> None:
    def run() -> None:
        size = 0
        with requests.get(server.url + "/large.php?mb=1024", stream=True, timeout=60) as answer:
            for block in answer.iter_content(1 << 20):
                size += len(block)
        assert size == GIB

    assert watch(server, run) < 24 << 20


@pytest.mark.parametrize(
    ("method", "mib"),
    # Passed on while it comes, the one, since that is asked for; the other, as nginx does it, when all of it is in a temporary file.
    [("PUT", 1024), ("POST", 256)],
)
def test_large_uploads_leave_memory_flat(hayate_command, tmp_path, method, mib) -> None:
    root = site.make(tmp_path)
    config = f'[limits]\nbody_size = "2G"\n[[app]]\nroot = "{root}"\nrequest_buffering = false\n'
    with Hayate(config=config, workers=2, ini={"post_max_size": "0"}) as server:

        def blocks() -> Iterator[bytes]:
            block = b"x" * (1 << 20)
            for _ in range(mib):
                yield block

        def run() -> None:
            headers = {"Content-Type": "application/octet-stream"}
            url = server.url + "/count.php"
            assert requests.request(method, url, data=blocks(), headers=headers, timeout=120).text == str(mib << 20)

        assert watch(server, run) < 24 << 20


def test_a_client_that_does_not_read_holds_back_php(server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.sendall(b"GET /large.php?mb=200 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        s.recv(1000)
        before = peak(processes(server))
        time.sleep(1)
        assert peak(processes(server)) - before < 8 << 20
    assert requests.get(server.url + "/ok.php?still", timeout=60).text == "ok still"


def test_body_limit(hayate_command, tmp_path) -> None:
    root = site.make(tmp_path)
    with Hayate(config=f'[limits]\nbody_size = "1K"\n[[app]]\nroot = "{root}"\n', workers=1) as server:
        assert requests.post(server.url + "/count.php", data=b"x" * 1024, timeout=60).text == "1024"
        assert requests.post(server.url + "/count.php", data=b"x" * 1025, timeout=60).status_code == 413
        chunked = requests.post(server.url + "/count.php", data=iter([b"x" * 2000]), timeout=60)
        assert chunked.status_code == 413
        # A client that reads only when all is sent has to be listened to until then.
        large = requests.post(server.url + "/count.php", data=b"x" * (100 << 20), timeout=60)
        assert large.status_code == 413
        assert large.headers.get("Connection") == (None if over.protocol == over.H2 else "close")


def test_finish_request_ends_the_answer_before_the_script(server, tmp_path) -> None:
    marker, go = tmp_path / "after", tmp_path / "go"
    assert requests.get(f"{server.url}/finish.php?file={marker}&go={go}", timeout=60).text == "answer"
    assert not marker.exists()
    go.touch()
    assert wait_until(lambda: marker.exists() and marker.read_text() == "after")


def test_a_client_that_leaves_is_noticed(server, tmp_path) -> None:
    marker = tmp_path / "abort"
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as s:
        s.sendall(f"GET /abort.php?file={marker} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        s.recv(100)
    assert wait_until(lambda: marker.exists() and marker.read_text() != "")
    assert marker.read_text() == "aborted"


class TestStatic:
    def test_validators(self, server) -> None:
        first = requests.get(server.url + "/plain.txt", timeout=60)
        assert first.headers["Content-Type"].startswith("text/plain")
        etag, modified = first.headers["ETag"], first.headers["Last-Modified"]
        for header in ({"If-None-Match": etag}, {"If-Modified-Since": modified}, {"If-None-Match": "*"}):
            again = requests.get(server.url + "/plain.txt", headers=header, timeout=60)
            assert (again.status_code, again.content) == (304, b"")
        assert requests.get(server.url + "/plain.txt", headers={"If-None-Match": '"no"'}, timeout=60).status_code == 200

    @pytest.mark.parametrize(
        ("value", "status", "body"),
        [
            ("bytes=0-4", 206, b"plain"),
            ("bytes=-7", 206, b"letters"),
            ("BYTES=0-4", 206, b"plain"),
            ("bYteS=-7", 206, b"letters"),
            ("bytes=25-", 206, b"letters"),
            ("bytes=25-1000", 206, b"letters"),
            ("bytes=32-", 416, None),
            ("bytes=9-3", 200, b"plain text of thirty-two letters"),
            ("lines=1-2", 200, b"plain text of thirty-two letters"),
        ],
    )
    def test_ranges(self, server, value, status, body) -> None:
        answer = requests.get(server.url + "/plain.txt", headers={"Range": value}, timeout=60)
        assert answer.status_code == status
        if body is not None:
            assert answer.content == body
        else:
            assert answer.headers["Content-Range"] == "bytes */32"

    def test_if_range(self, server) -> None:
        etag = requests.get(server.url + "/plain.txt", timeout=60).headers["ETag"]
        fresh = {"Range": "bytes=0-4", "If-Range": etag}
        stale = {"Range": "bytes=0-4", "If-Range": '"old"'}
        assert requests.get(server.url + "/plain.txt", headers=fresh, timeout=60).status_code == 206
        assert requests.get(server.url + "/plain.txt", headers=stale, timeout=60).status_code == 200

    def test_precompressed(self, server) -> None:
        packed = requests.get(server.url + "/style.css", headers={"Accept-Encoding": "gzip"}, timeout=60)
        assert packed.headers["Content-Encoding"] == "gzip" and "Accept-Encoding" in packed.headers["Vary"]
        assert packed.headers["Content-Type"].startswith("text/css")
        plain = requests.get(server.url + "/style.css", headers={"Accept-Encoding": "identity"}, timeout=60)
        assert "Content-Encoding" not in plain.headers and plain.text == packed.text

    def test_directories(self, server) -> None:
        assert requests.get(server.url + "/", timeout=60).text == "<h1>index</h1>"
        moved = requests.get(server.url + "/sub?a=b", allow_redirects=False, timeout=60)
        assert moved.status_code == 301 and moved.headers["Location"].endswith("/sub/?a=b")
        assert requests.get(server.url + "/sub/", timeout=60).text.startswith("sub index")

    def test_a_large_file_is_streamed(self, server) -> None:
        path = server.root / "large.bin"
        with path.open("wb") as f:
            f.truncate(300 << 20)
        try:
            risen = watch(server, lambda: requests.get(server.url + "/large.bin", timeout=60).content)
            assert risen < 24 << 20
        finally:
            os.unlink(path)
