"""A server that nobody asks for anything sleeps, and is small: all its processes, with TLS, two threads, and HTTP/3 or without."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import time

import pytest
import requests

from lib import site
from lib.process import descendants, temporary_directory
from lib.servers import free_port
from lib.tls import TlsHayate, connect, context, get, self_signed

CONFIG = """
listen = ["127.0.0.1:{port}", { address = "127.0.0.1:{tls}", tls = true }]
front_threads = 2
%s
[tls]
redirect_http = false
http3 = %s
certificates = [{ certificate = "%s/one.pem", key = "%s/one.key" }]
[[app]]
root = "%s"
workers = 2
"""
#: Seconds after which the master asks its front seldom enough, and in which is looked.
SETTLED, LOOK = 38, 30


def wake_ups(pid: int) -> dict[str, int]:
    """How often each thread has gone to sleep by itself: being interrupted by others is no wake-up."""
    found = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        status = (task / "status").read_text()
        found[f"{re.search('Name:.(.*)', status)[1]} {task.name}"] = int(re.search(r"\nvoluntary_ctxt_switches:\s+(\d+)", status)[1])
    return found


def memory(pid: int) -> dict[str, int]:
    """KB. Its own; and, where root asks, with its part of what it shares (PSS). Resident besides is the program, as far as it lies in the page cache."""
    found = {"own": int(re.search(r"RssAnon:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1])}
    with contextlib.suppress(PermissionError):
        found["part"] = int(re.search(r"\nPss:\s+(\d+)", pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text())[1])
    return found


@pytest.mark.plain("it has TLS and plain HTTP itself")
def test_an_idle_server_sleeps_and_is_small(hayate_command) -> None:
    """Both servers at one time: they only sleep."""
    servers: list[TlsHayate] = []
    user = 'user = "www-data"' if os.geteuid() == 0 else ""
    try:
        for http3 in ("false", "true"):
            place = temporary_directory("idle")
            self_signed(place, "one", ["a.example"])
            config = CONFIG % (user, http3, place, place, site.make(place))
            servers.append(TlsHayate(config, {"port": free_port(), "tls": free_port()}).start())
            assert requests.get(f"{servers[-1].url}/ok.php?x", timeout=60).text == "ok x"
            with connect(servers[-1].ports["tls"], "a.example", context(place / "one.pem")) as tls:
                assert get(tls)[0] == 200
        time.sleep(SETTLED)
        processes = {pid: server for server in servers for pid in (server.pid, *descendants(server.pid))}
        before = {pid: wake_ups(pid) for pid in processes}
        time.sleep(LOOK)
        woken = {}
        for server in servers:
            woken[server] = {
                f"{pid} {thread}": count - before[pid].get(thread, 0)
                for pid in processes if processes[pid] is server
                for thread, count in wake_ups(pid).items() if count != before[pid].get(thread, 0)
            }  # fmt: skip
        for server, counts in woken.items():
            # The master looks at the files of certificates, and asks its front once at most. A zygote and workers have nothing to wake up for.
            assert sum(counts.values()) <= 30, counts
            of_php = [pid for pid in processes if processes[pid] is server and pid not in (server.pid, server.front)]
            assert len(of_php) == 3 and not any(name.startswith(f"{pid} ") for name in counts for pid in of_php), counts
            for pid in (server.front, server.pid):
                held = memory(pid)
                assert held["own"] < 5 << 10 and held.get("part", 0) < 15 << 10, held
    finally:
        for server in servers:
            server.stop()
            server.remove()
