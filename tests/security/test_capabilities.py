"""What a service manager lets the master do, such as opening port 80, is handed on to nobody."""

from __future__ import annotations

import os
import pathlib
import pwd
import re
import shutil
from collections.abc import Iterator

import pytest
import requests

from lib.process import temporary_directory
from lib.servers import GENERIC_WORKER, Hayate

USER = "www-data"
SETS = ("CapInh", "CapPrm", "CapEff", "CapAmb")
SCRIPT = """<?php
/* A worker's own sets, and those of a program it starts. */
echo file_get_contents('/proc/self/status'), "=====", shell_exec('cat /proc/self/status');
"""


class AsService(Hayate):
    """Started as systemd starts it with User= and AmbientCapabilities=CAP_NET_BIND_SERVICE."""

    def command(self) -> list[str]:
        user = pwd.getpwnam(USER)
        as_user = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        keep = "+net_bind_service"
        return ["/usr/bin/setpriv", *as_user, f"--inh-caps={keep}", f"--ambient-caps={keep}", *super().command()]


@pytest.fixture(scope="module")
def site() -> Iterator[tuple[pathlib.Path, pathlib.Path]]:
    """(a document root, a worker script), where every user may read them."""
    directory = temporary_directory("capabilities")
    root, worker = directory / "public", directory / "worker.php"
    root.mkdir()
    (root / "index.php").write_text(SCRIPT)
    shutil.copyfile(GENERIC_WORKER, worker)
    yield root, worker
    shutil.rmtree(directory)


def capabilities(status: str) -> dict[str, int]:
    """The capability sets in the text of a /proc/PID/status."""
    return {name: int(value, 16) for name, value in re.findall(r"(?m)^(Cap\w+):\s*([0-9a-f]+)$", status)}


@pytest.mark.parametrize("mode", ["classic", "worker"])
def test_the_capability_to_open_low_ports_stays_with_the_master(hayate_command, site, mode: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can start a server with a capability, as systemd does")
    root, worker = site
    server = AsService(root, workers=1, worker=worker if mode == "worker" else None)
    os.chown(server.dir, pwd.getpwnam(USER).pw_uid, -1)
    with server:
        master = capabilities(pathlib.Path(f"/proc/{server.pid}/status").read_text())
        assert master["CapAmb"] == master["CapEff"] == 1 << 10, "the server was not started as this test means to"
        front = pathlib.Path(f"/proc/{server.front}/status").read_text()
        own, of_child = requests.get(server.url, timeout=60).text.split("=====")
    for status in (front, own, of_child):
        sets = capabilities(status)
        assert {name: sets[name] for name in SETS} == dict.fromkeys(SETS, 0)
