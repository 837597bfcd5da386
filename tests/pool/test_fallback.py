"""An application that cannot be rewound runs in a slower way that is as safe; never one that keeps state."""

from __future__ import annotations

import pathlib
import time

import pytest
import requests

from lib.servers import Hayate

WORKER = """<?php
$n = 0;
CONNECT
$handler = function () use (&$n, &$peer) {
    WORK
    header('X-Pid: '.getmypid());
    echo 'worker ', ++$n;
};
while (hayate_handle_request($handler)) {
}
"""
CHILD = "proc_open(['sleep', '5'], [], $pipes);"
TALK = "fwrite($peer, 'x');"


def site(directory: pathlib.Path, work: str, connect: str = "") -> pathlib.Path:
    (directory / "index.php").write_text("<?php echo 'classic ', $n = ($n ?? 0) + 1;")
    (directory / "worker.php").write_text(WORKER.replace("CONNECT", connect).replace("WORK", work))
    return directory


def until_fallen(server: Hayate, to: str) -> dict:
    """Makes requests until the application has fallen back; each is answered as by a fresh application."""
    deadline = time.monotonic() + 60
    while True:
        answer = requests.get(server.url + "/x", timeout=60)
        assert answer.status_code == 200 and answer.text in ("worker 1", "classic 1"), answer.text
        (app,) = server.status()["apps"]
        if app["fallback"] is not None and app["fallback"]["to"] == to:
            return app
        assert time.monotonic() < deadline, app


def test_from_rewinding_to_a_fork_for_each_request(tmp_path) -> None:
    root = site(tmp_path, CHILD)
    with Hayate(root, worker=root / "worker.php", workers=1, args=["--warmup", "off"]) as server:
        app = until_fallen(server, "fork")
        assert app["mode"] == "worker" and "left a child process behind" in app["fallback"]["why"]
        pids = {requests.get(server.url + "/x", timeout=60).headers["X-Pid"] for _ in range(10)}
        assert len(pids) == 10, "each request has a process of its own"
        assert requests.get(server.url + "/x", timeout=60).text == "worker 1"
        assert server.logged("Until the next reload it runs with a fork for each request")
        assert server.reload().returncode == 0
        assert server.status()["apps"][0]["fallback"] is None, "a reload tries again"


def test_to_classic_mode_when_a_connection_of_the_boot_is_used(tmp_path, peer) -> None:
    root = site(tmp_path, TALK, f"$peer = stream_socket_client('tcp://127.0.0.1:{peer}');")
    with Hayate(root, worker=root / "worker.php", workers=1, args=["--warmup", "off"]) as server:
        app = until_fallen(server, "classic")
        assert app["mode"] == "classic" and "used a connection, or an event loop, that the boot" in app["fallback"]["why"]
        assert requests.get(server.url + "/x", timeout=60).text == "classic 1"
