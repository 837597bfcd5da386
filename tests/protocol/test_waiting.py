"""What requests hold while they wait for a worker: their heads, and no block of what was read."""

from __future__ import annotations

import contextlib
import pathlib
import re
import resource
import socket
from collections.abc import Iterator

import pytest
import requests

from lib import site
from lib.process import free_port, wait_until
from lib.servers import Hayate

pytestmark = pytest.mark.plain("the connections are bare sockets that idle")
WAITING = 2000
CONFIG = """
metrics = "127.0.0.1:{metrics}"
front_threads = 1
[[app]]
root = "{root}"
workers = 1
queue_limit = 4000
queue_timeout = "10m"
request_timeout = "10m"
"""


@contextlib.contextmanager
def open_files(count: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < count:
        pytest.skip(f"no more than {before[1]} files may be open")
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def found(pattern: str, text: str) -> int:
    (value,) = re.findall(pattern, text)
    return int(value)


def test_a_request_that_waits_holds_its_head_alone(hayate_command, tmp_path) -> None:
    """What it was read to, a block of 16 KB, is given back. The kernel would show of that one page at most, and none where the heap has room
    left from before: so what decides is what the front counts, by the capacity of all that is kept."""
    root, go, metrics = site.make(tmp_path), tmp_path / "go", free_port()
    tmp_path.chmod(0o777)
    (root / "hold.php").write_text("<?php touch($_GET['file'] . '-begun'); while (!file_exists($_GET['file'])) { usleep(10_000); } echo 'held';")
    with open_files(8192), contextlib.ExitStack() as stack:
        server = stack.enter_context(Hayate(config=CONFIG.format(metrics=metrics, root=root)))
        front = pathlib.Path(f"/proc/{server.front}/status")

        def connect() -> socket.socket:
            return stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=120))

        def held() -> tuple[int, int]:
            """Bytes: of the front's own memory, and of what it counts for requests."""
            counted = requests.get(f"http://127.0.0.1:{metrics}/metrics", timeout=60).text
            return found(r"RssAnon:\s+(\d+) kB", front.read_text()) << 10, found(r"(?m)^hayate_answer_memory_bytes (\d+)$", counted)

        connections = [connect() for _ in range(WAITING)]
        # What a connection itself takes is there by then.
        for one in connections:
            one.sendall(b"GET /plain.txt HTTP/1.1\r\nHost: a\r\n\r\n")
            assert one.recv(65536).startswith(b"HTTP/1.1 200 ")
        before = held()
        busy = connect()
        busy.sendall(f"GET /hold.php?file={go} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        # All others are behind it.
        assert wait_until((tmp_path / "go-begun").exists)
        for one in connections:
            one.sendall(b"GET /ok.php?x HTTP/1.1\r\nHost: a\r\nCookie: " + b"c" * 200 + b"\r\n\r\n")
        assert wait_until(lambda: server.status()["apps"][0]["queue"] >= WAITING, timeout=120)
        more = [(now - then) // WAITING for now, then in zip(held(), before, strict=True)]
        go.touch()
        for one in (busy, *connections):
            assert one.recv(65536).startswith(b"HTTP/1.1 200 ")
        assert max(more) < 1500, f"bytes for each: {more[0]} of memory, {more[1]} counted"
