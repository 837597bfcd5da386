"""Errors that visitors bring about do not fill the log: so many of one kind are written for each application, and what is missing is said."""

from __future__ import annotations

import re
import socket
import threading

import pytest
import requests

from lib import site
from lib.process import free_port, wait_until
from lib.servers import Hayate

pytestmark = pytest.mark.plain("the flood is pipelined")

#: Requests of the flood, and bytes of the path of each.
FLOOD = 4000
PATH = 7900


def flood(server: Hayate, prefix: str) -> None:
    """Each gets 503, for the queue is full."""
    request = f"GET {prefix}/ok.php/{'x' * PATH} HTTP/1.1\r\nHost: a\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        sender = threading.Thread(target=lambda: client.sendall(request * (FLOOD - 1) + request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")))
        sender.start()
        got = bytearray()
        while block := client.recv(1 << 20):
            got += block
        sender.join()
    assert got.count(b"HTTP/1.1 503 ") == FLOOD


def test_errors_that_visitors_bring_about_do_not_fill_the_log(hayate_command, tmp_path) -> None:
    root = site.make(tmp_path)
    metrics = f"127.0.0.1:{free_port()}"
    app = '[[app]]\nname = "{0}"\nroot = "{1}"\npath = "/{0}"\nworkers = 1\nqueue_limit = 1\nqueue_timeout = "5m"\nrequest_timeout = "5m"\n'
    config = f'metrics = "{metrics}"\n' + app.format("flooded", root) + app.format("other", root)
    with Hayate(config=config) as server:
        holding = []
        # One is served, one waits: there is room for no third.
        for state in (lambda app: app["workers"][0]["state"] == "serving", lambda app: app["queue"] == 1):
            for name in ("flooded", "other"):
                url = f"{server.url}/{name}/hold.php?go={tmp_path}/go"
                holding.append(threading.Thread(target=requests.get, args=(url,), kwargs={"timeout": 300}))
                holding[-1].start()
            assert wait_until(lambda state=state: all(state(app) for app in server.status()["apps"]))
        flood(server, "/flooded")
        for n in range(30):
            assert requests.get(f"{server.url}/other/ok.php/{n}-of-mine", timeout=30).status_code == 503
        assert wait_until(lambda: "29-of-mine" in server.log())
        log = server.log()
        (tmp_path / "go").touch()
        for thread in holding:
            thread.join()
        written = log.count("x" * 200)
        assert len(log) < 1 << 20 and "x" * 300 not in log, "a line shows the beginning of a path"
        assert [int(n) for n in re.findall(r"/(\d+)-of-mine", log)] == list(range(30)), "nobody else's lines are missing"
        left_out = re.compile(r"(?m)^hayate_log_left_out_total (\d+)$")
        text = requests.get(f"http://{metrics}/metrics", timeout=30).text
        left_out = int(left_out.search(text)[1])
        assert written and left_out and written + left_out == FLOOD, f"{written} lines and {left_out} left out of {FLOOD}"
        assert server.logged("lines of this kind were left out"), "it is said"
