"""Whoever has all connections there may be and does nothing with them does not shut the others out."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time

import pytest
import requests

from lib import site
from lib.servers import Hayate

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


def test_idle_connections_make_room_for_newcomers(hayate_command, tmp_path) -> None:
    root = site.make(tmp_path)
    # One thread, for each looks at its own connections only.
    config = f'front_threads = 1\n[limits]\nconnections = {LIMIT}\n[[app]]\nroot = "{root}"\nworkers = 2\n'
    with Hayate(config=config) as server, contextlib.ExitStack() as stack:
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
