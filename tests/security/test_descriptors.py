"""Visitors cannot use up the server's open files: what is needed to command it, and to start workers, is left."""

from __future__ import annotations

import os
import socket
import time

import requests

from lib import site
from lib.process import wait_until
from lib.servers import Hayate


def test_a_flood_of_connections_leaves_open_files_for_commands_and_workers(hayate_command, tmp_path) -> None:
    class Few(Hayate):
        def command(self):
            return ["/usr/bin/prlimit", "--nofile=200:200", *super().command()]

    with Few(site.make(tmp_path), workers=2) as server:
        before = requests.get(server.url + "/pid.php", timeout=60).text
        flood = []
        try:
            for _ in range(400):
                one = socket.socket()
                one.setblocking(False)
                one.connect_ex(("127.0.0.1", server.port))
                flood.append(one)
            time.sleep(1)
            assert len(os.listdir(f"/proc/{server.front}/fd")) < 160
            os.kill(int(before), 9)
            assert server.reload().returncode == 0, server.log_tail()
        finally:
            for one in flood:
                one.close()

        def answers() -> bool:
            try:
                return requests.get(server.url + "/ok.php?x", timeout=60).text == "ok x"
            except requests.RequestException:
                return False

        assert wait_until(answers)
        assert "cannot be accepted" not in server.log()
