"""Bytes that nobody would send, to the control socket and to the address for metrics: they cost their own connection, and command nothing."""

from __future__ import annotations

import contextlib
import os
import random
import re
import socket

import pytest
import requests

from lib import site
from lib.process import free_port
from lib.servers import Hayate

SEEDS = [
    b"GET /status HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\nGET /readyz HTTP/1.0\r\n\r\n",
    b"GET http://a/healthz?x=y HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
    b"POST /healthz HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nExpect: 100-continue\r\n\r\n",
    b"GET /" + b"status/" * 40 + b"%zz?%ff" * 40 + b" HTTP/1.1\r\nHost: " + b"a" * 300 + b"\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]
PIECES = [b"\r\n", b"\n", b"\0", b" ", b":", b"/", b"//", b"%", b"?", b"\xff", b"-1", b"18446744073709551616", b"Content-Length: 5\r\n", b"x" * 9000]


def mutant(dice: random.Random) -> bytes:
    data = bytearray(dice.choice(SEEDS))
    for _ in range(dice.randrange(5)):
        at = dice.randrange(len(data) + 1)
        end = min(at + dice.randrange(8), len(data))
        data[at:end] = dice.choice([dice.choice(PIECES), b"", bytes([dice.randrange(256)]), bytes(data[at:end]) * 2])
    return bytes(data)


def ask(address: str | tuple[str, int], data: bytes, patience: float = 0.05) -> bytes:
    """What comes until the connection ends, if it is not reset before. What is no whole request is given up by us after a moment."""
    got = b""
    with socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET) as s, contextlib.suppress(OSError):
        s.settimeout(patience)
        s.connect(address)
        s.sendall(data)
        while piece := s.recv(65536):
            got += piece
    return got


@pytest.mark.parametrize("where", ["socket", "metrics"])
def test_what_nobody_would_send_costs_its_own_connection(hayate_command, tmp_path, where) -> None:
    port = free_port()
    dice = random.Random(os.environ.get("HAYATE_FUZZ_SEED", "1"))
    with Hayate(config=f'metrics = "127.0.0.1:{port}"\n[[app]]\nroot = "{site.make(tmp_path)}"\nworkers = 1\n') as server:
        address = str(server.control) if where == "socket" else ("127.0.0.1", port)
        statuses = set()
        for _ in range(500):
            answer = ask(address, mutant(dice))
            assert answer == b"" or re.match(rb"HTTP/1\.[01] \d{3} ", answer), answer[:100]
            statuses |= {int(found) for found in re.findall(rb"(?m)^HTTP/1\.[01] (\d{3}) ", answer)}
        assert statuses >= {200, 400, 404, 405}, statuses
        assert requests.get(server.url + "/ok.php?x", timeout=60).text == "ok x"
        assert server.run("status").returncode == 0
        # A panic would be in the log, which is looked at when it stops.


def test_by_the_address_for_metrics_nobody_commands(hayate_command, tmp_path) -> None:
    port = free_port()
    with Hayate(config=f'metrics = "127.0.0.1:{port}"\n[[app]]\nroot = "{site.make(tmp_path)}"\nworkers = 1\n') as server:
        front = server.front
        for path in ("stop", "reload", "upgrade", "status"):
            for method in ("GET", "POST"):
                answer = ask(("127.0.0.1", port), f"{method} /{path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode(), 60)
                assert answer.startswith(b"HTTP/1.1 404 "), (method, path, answer)
        assert server.front == front
        assert server.process is not None and server.process.poll() is None
