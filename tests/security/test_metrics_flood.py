"""The address for metrics is open to every process of the machine; what floods it does not hold up visitors."""

from __future__ import annotations

import os
import socket
import time

import requests

from lib import site
from lib.process import free_port
from lib.servers import Hayate


def test_a_flood_of_connections_for_metrics_does_not_hold_up_visitors(hayate_command, tmp_path) -> None:
    port = free_port()
    root = site.make(tmp_path)
    with Hayate(config=f'metrics = "127.0.0.1:{port}"\n[[app]]\nroot = "{root}"\nworkers = 2\n') as server:
        before = len(os.listdir(f"/proc/{server.front}/fd"))
        flood = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(600)]
        try:
            for one in flood:
                one.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n" * 200)
            time.sleep(0.2)
            assert len(os.listdir(f"/proc/{server.front}/fd")) < before + 100
            for _ in range(20):
                assert requests.get(server.url + "/ok.php?x", timeout=30).text == "ok x"
        finally:
            for one in flood:
                one.close()
        answer = requests.get(f"http://127.0.0.1:{port}/metrics", timeout=30)
        assert answer.status_code == 200 and answer.text.endswith("# EOF\n")
