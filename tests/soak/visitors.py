"""Visitors of the soak: each does one thing with one request and says what came of it.

Every request carries a number of its own, so that the books can be compared line by line with the access log.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
import socket
import threading
import time
from collections.abc import Callable

from lib.client import BadResponse, encode, exchange

#: No request of the soak may wait longer for its answer; the limits of the configuration are far below.
PATIENCE = 75.0


@dataclasses.dataclass(frozen=True)
class Visit:
    """One request: `status` is 0 unless a whole answer came. `end`: answered, cut (by the server), left (by us), hung. `asked`: all of the
    request was sent before we left."""

    id: str
    kind: str
    end: str
    status: int
    at: float
    until: float
    asked: bool = True


_numbers = itertools.count(1)
_lock = threading.Lock()


def number() -> str:
    with _lock:
        return str(next(_numbers))


class Visitor:
    """Makes requests to one port; `chance` draws what and where."""

    def __init__(self, port: int, chance: random.Random) -> None:
        self.address = ("127.0.0.1", port)
        self.chance = chance
        self.kinds: list[tuple[int, Callable[[], Visit]]] = [
            (30, lambda: self.get("ok.php")),
            (10, lambda: self.get("small.txt")),
            (3, lambda: self.get("large.bin")),
            (6, lambda: self.get("work.php")),
            (4, lambda: self.get("sleep.php", f"&ms={self.chance.randint(1, 150)}")),
            (4, lambda: self.get("large.php", f"&n={self.chance.randint(1, 30)}")),
            (4, lambda: self.get("flush.php")),
            (5, lambda: self.post("echo.php", self.chance.choice([0, 10, 5000, 200_000]))),
            (3, lambda: self.post("form.php", 20_000)),
            (3, lambda: self.chunks("echo.php")),
            (4, lambda: self.get("error.php")),
            (3, lambda: self.get("exception.php")),
            (1, lambda: self.get("memory.php")),
            (4, lambda: self.get("exit.php")),
            (1, lambda: self.get("crash.php")),
            (1, lambda: self.get("crash_late.php")),
            (4, lambda: self.get("session.php")),
            (2, lambda: self.get("log.php")),
            (3, lambda: self.get("finish.php")),
            (4, lambda: self.get("missing.php")),
            (4, self.leave_at_once),
            (3, self.leave_in_the_body),
            (3, lambda: self.leave_while_reading("large.php", "&n=60")),
            (2, lambda: self.leave_while_reading("large.bin", "")),
            (2, self.slow_head),
            (2, self.slow_reader),
            (2, self.nonsense),
        ]
        self._weights = [weight for weight, _ in self.kinds]

    def visit(self) -> Visit:
        """One request of some kind."""
        (chosen,) = self.chance.choices(self.kinds, self._weights)
        return chosen[1]()

    def path(self, id: str, script: str, query: str = "") -> str:
        return f"/{self.chance.choice(['classic', 'rewound'])}/{script}?id={id}{query}"

    def _exchange(self, id: str, kind: str, data: bytes) -> Visit:
        begin = time.time()
        try:
            response = exchange(self.address, data, timeout=PATIENCE)
        except TimeoutError:
            return Visit(id, kind, "hung", 0, begin, time.time())
        except BadResponse:
            return Visit(id, kind, "cut", 0, begin, time.time())
        except OSError:
            return Visit(id, kind, "refused", 0, begin, time.time())
        assert response is not None
        if response.status == 0 or not response.complete:
            return Visit(id, kind, "cut", response.status, begin, time.time())
        return Visit(id, kind, "answered", response.status, begin, time.time())

    def get(self, script: str, query: str = "") -> Visit:
        id = number()
        headers = [("Host", "soak.test"), ("Connection", "close")]
        return self._exchange(id, script, encode("GET", self.path(id, script, query), headers))

    def post(self, script: str, size: int) -> Visit:
        id = number()
        body = b"a=" + b"x" * size
        headers = [("Host", "soak.test"), ("Connection", "close"), ("Content-Length", str(len(body)))]
        headers.append(("Content-Type", "application/x-www-form-urlencoded"))
        return self._exchange(id, f"post {script}", encode("POST", self.path(id, script), headers, body))

    def chunks(self, script: str) -> Visit:
        id = number()
        headers = [("Host", "soak.test"), ("Connection", "close"), ("Transfer-Encoding", "chunked")]
        chunks = b"".join(b"%x\r\n%s\r\n" % (n, b"c" * n) for n in [1, 1, 17, 4000, 1, 70_000]) + b"0\r\n\r\n"
        return self._exchange(id, f"chunks {script}", encode("POST", self.path(id, script), headers, chunks))

    def _connect(self) -> socket.socket:
        s = socket.create_connection(self.address, timeout=PATIENCE)
        return s

    def _leaving(self, kind: str, send: Callable[[socket.socket, str], None], whole: bool = True) -> Visit:
        id, begin, asked = number(), time.time(), False
        try:
            with self._connect() as s:
                send(s, id)
                asked = whole
        except OSError:
            # The server was faster: it has answered and closed, or is being replaced.
            pass
        return Visit(id, kind, "left", 0, begin, time.time(), asked)

    def leave_at_once(self) -> Visit:
        def send(s: socket.socket, id: str) -> None:
            s.sendall(encode("GET", self.path(id, "sleep.php", "&ms=30"), [("Host", "soak.test")]))

        return self._leaving("leave at once", send)

    def leave_in_the_body(self) -> Visit:
        def send(s: socket.socket, id: str) -> None:
            s.sendall(encode("POST", self.path(id, "echo.php"), [("Host", "soak.test"), ("Content-Length", "100000")], b"x" * 40_000))

        return self._leaving("leave in the body", send, whole=False)

    def leave_while_reading(self, script: str, query: str) -> Visit:
        def send(s: socket.socket, id: str) -> None:
            s.sendall(encode("GET", self.path(id, script, query), [("Host", "soak.test")]))
            s.recv(1000)

        return self._leaving(f"leave while reading {script}", send)

    def slow_head(self) -> Visit:
        id = number()
        data = encode("GET", self.path(id, "ok.php"), [("Host", "soak.test"), ("Connection", "close")])
        return self._slow(id, "slow head", data, 5, 0.01, 1 << 16)

    def slow_reader(self) -> Visit:
        id = number()
        data = encode("GET", self.path(id, "large.php", "&n=20"), [("Host", "soak.test"), ("Connection", "close")])
        return self._slow(id, "slow reader", data, len(data), 0.0, 60_000, 0.01)

    def _slow(self, id: str, kind: str, data: bytes, piece: int, pause: float, read: int, read_pause: float = 0.0) -> Visit:
        begin = time.time()
        received = b""
        try:
            with self._connect() as s:
                for i in range(0, len(data), piece):
                    s.sendall(data[i : i + piece])
                    time.sleep(pause)
                while got := s.recv(read):
                    received += got
                    time.sleep(read_pause)
        except TimeoutError:
            return Visit(id, kind, "hung", 0, begin, time.time())
        except OSError:
            return Visit(id, kind, "cut", 0, begin, time.time())
        if not received.startswith(b"HTTP/1.1 ") or b"\r\n\r\n" not in received:
            return Visit(id, kind, "cut", 0, begin, time.time())
        head, _, body = received.partition(b"\r\n\r\n")
        status = int(head[9:12])
        length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), None)
        whole = len(body) == length if length is not None else body.endswith(b"0\r\n\r\n")
        return Visit(id, kind, "answered" if whole else "cut", status, begin, time.time())

    def nonsense(self) -> Visit:
        id = number()
        data = f"GET {self.path(id, 'ok.php')} HTTP/1.1\r\nHost: soak.test\r\nBad Header: x\r\nConnection: close\r\n\r\n"
        return self._exchange(id, "nonsense", data.encode())
