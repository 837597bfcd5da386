"""Whoever has all connections there may be and does nothing with them does not shut the others out."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import selectors
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from lib import site
from lib.process import stop_process
from lib.servers import Hayate, free_port

from .h2 import GOAWAY, HEADERS, Raw

pytestmark = pytest.mark.plain("the connections are bare sockets that idle")

LIMIT = 48


def connect(server: Hayate, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=60, source_address=(source, 0))


def get(s: socket.socket) -> int:
    s.sendall(b"GET /plain.txt HTTP/1.1\r\nHost: a\r\n\r\n")
    answer = http.client.HTTPResponse(s)
    answer.begin()
    answer.read()
    return answer.status


@contextlib.contextmanager
def started(place, top: str = "", limits: str = ""):
    """On several threads: it does not matter which of them has a connection."""
    root = site.make(place)
    config = f'front_threads = 4\n{top}[limits]\nconnections = {LIMIT}\n{limits}[[app]]\nroot = "{root}"\nworkers = 2\n'
    with Hayate(config=config) as server, contextlib.ExitStack() as stack:
        yield server, stack


def test_idle_connections_make_room_for_newcomers(hayate_command, tmp_path) -> None:
    with started(tmp_path) as (server, stack):
        # The first of all, and the one that idles longest, but the only one of its address.
        regular = stack.enter_context(connect(server, "127.0.0.2"))
        assert get(regular) == 200
        busy: list[str] = []
        slow = threading.Thread(target=lambda: busy.append(requests.get(server.url + "/sleep.php?ms=6000", timeout=60).text))
        slow.start()
        # There is room enough for these: nobody has to go yet.
        hoard = [stack.enter_context(connect(server)) for _ in range(LIMIT - 8)]
        assert {get(one) for one in hoard} == {200}
        # All have waited for so long that they may be let go.
        time.sleep(3.1)
        # They are more than there is room for.
        newcomers = [stack.enter_context(connect(server, "127.0.0.3")) for _ in range(12)]
        assert [get(one) for one in newcomers] == [200] * 12
        assert get(regular) == 200
        slow.join()
        assert busy and busy[0].isdigit()


def test_heads_that_do_not_end_make_room_before_those_who_think(hayate_command, tmp_path) -> None:
    with started(tmp_path) as (server, stack):
        regulars = [stack.enter_context(connect(server, f"127.0.1.{i}")) for i in range(1, 5)]
        assert {get(one) for one in regulars} == {200}
        hoard = [stack.enter_context(connect(server)) for _ in range(LIMIT - 8)]
        for one in hoard:
            one.sendall(b"G")
        time.sleep(3.1)
        newcomers = [stack.enter_context(connect(server, "127.0.0.3")) for _ in range(12)]
        assert [get(one) for one in newcomers] == [200] * 12
        assert [get(one) for one in regulars] == [200] * 4


def test_those_who_have_had_their_last_answer_make_room(hayate_command, tmp_path) -> None:
    """What a client still sends after it is thrown away, so that it can read the answer: for half a minute, if there is room."""
    metrics = f"127.0.0.1:{free_port()}"
    with started(tmp_path, f'metrics = "{metrics}"\n') as (server, stack):
        regulars = [stack.enter_context(connect(server, f"127.0.1.{i}")) for i in range(1, 5)]
        assert {get(one) for one in regulars} == {200}
        hoard = [stack.enter_context(connect(server)) for _ in range(LIMIT - 8)]
        for one in hoard:
            one.sendall(b"nonsense\r\n\r\n")
            assert one.recv(100).startswith(b"HTTP/1.1 400 ")
        over = threading.Event()

        def go_on() -> None:
            while not over.wait(0.5):
                for one in hoard:
                    with contextlib.suppress(OSError):
                        one.sendall(b"x")

        talking = threading.Thread(target=go_on)
        talking.start()
        stack.callback(talking.join)
        stack.callback(over.set)
        time.sleep(3.1)
        newcomers = [stack.enter_context(connect(server, "127.0.0.3")) for _ in range(12)]
        assert [get(one) for one in newcomers] == [200] * 12
        text = requests.get(f"http://{metrics}/metrics", timeout=60).text
        # The regulars idle as well, but go last.
        assert int(re.search(r"(?m)^hayate_connections_let_go_total (\d+)$", text)[1]) >= 4
        assert [get(one) for one in regulars] == [200] * 4


def readable(clients: list[Raw], timeout: float) -> list[Raw]:
    """Those to whom something has come, after `timeout` seconds at most. select() knows no descriptor above 1,023, and other tests may leave some."""
    with selectors.DefaultSelector() as ready:
        for one in clients:
            ready.register(one.sock, selectors.EVENT_READ, one)
        return [key.data for key, _ in ready.select(timeout)]


def idle(server: Hayate, stack: contextlib.ExitStack) -> list[Raw]:
    """Connections of HTTP/2 up to the limit's last part, each with one answer and idle for so long that it may have to go."""
    clients = [Raw(stack.enter_context(connect(server))) for _ in range(LIMIT - 8)]
    for one in clients:
        one.request(1, "/plain.txt")
        assert one.status(1) == "200"
    time.sleep(3.1)
    return clients


def test_a_request_that_crosses_the_words_to_go_is_answered(hayate_command, tmp_path) -> None:
    with started(tmp_path, "http2_prior_knowledge = true\n") as (server, stack):
        clients = idle(server, stack)
        with ThreadPoolExecutor(1) as others:
            # More than there is room for, so room is made again and again.
            newcomers = others.submit(lambda: [get(stack.enter_context(connect(server, "127.0.0.3"))) for _ in range(12)])
            told = []
            while not told:
                told = readable(clients, 60)
            asked = told[0]
            got = asked.until(lambda kind, *_: kind == GOAWAY)
            # The way to it is long: it sends a request, and its answer to the ping, when those words have come, 300 ms later.
            time.sleep(0.3)
            asked.request(3, "/plain.txt")
            answered = asked.until(lambda kind, flags, stream, payload: kind == HEADERS and stream == 3)
            assert got and answered, "the connection was cut"
            for one in clients:
                one.sock.close()
            assert newcomers.result() == [200] * 12


def test_those_who_were_told_to_go_and_have_still_to_do_are_not_waited_for(hayate_command, tmp_path) -> None:
    with started(tmp_path, "http2_prior_knowledge = true\n", 'body_timeout = "600s"\nbody_rate = "0"\n') as (server, stack):
        clients = idle(server, stack)
        with ThreadPoolExecutor(1) as others:
            newcomers = others.submit(lambda: [get(stack.enter_context(connect(server, "127.0.0.3"))) for _ in range(12)])
            stay = 4
            while not newcomers.done():
                told = readable(clients, 0.2)
                for one in told:
                    clients.remove(one)
                    one.until(lambda kind, *_: kind == GOAWAY)
                    if stay > 0:
                        # As many as are asked at one time, and one more; their bodies never come.
                        one.request(3, "/echo.php", ("content-length", "10"), method="POST", end=False)
                        stay -= 1
                    else:
                        one.sock.close()
            assert newcomers.result() == [200] * 12


def test_a_crowd_that_asks_for_files_nobody_has_asked_for_gets_them(hayate_command, tmp_path) -> None:
    """Each file is looked up by one of a few threads, and what waits for them is no reason to turn visitors away."""
    many = 1500
    for n in range(many):
        (tmp_path / f"{n}.txt").write_text(f"file {n}")
    with Hayate(tmp_path, workers=1) as server, contextlib.ExitStack() as stack:
        visitors = [stack.enter_context(connect(server, f"127.0.{n % 8}.1")) for n in range(many)]
        front = server.status()["front"]
        stop_process(front)  # so that all are there at once
        for n, visitor in enumerate(visitors):
            visitor.sendall(f"GET /{n}.txt HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        os.kill(front, signal.SIGCONT)
        assert {visitor.recv(12) for visitor in visitors} == {b"HTTP/1.1 200"}
