"""An application that cannot be rewound runs in a slower way that is as safe; never one that keeps state."""

from __future__ import annotations

import os
import pathlib
import signal
import time

import pytest
import requests

from lib.process import wait_until
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
        # What was counted before is not gone with the way that counted it.
        assert f'hayate_rewinds_total{{app="{root.name}"}} ' in server.metrics()


def test_a_boot_that_was_declined_does_not_run_again_while_its_replacement_boots(tmp_path) -> None:
    root = site(tmp_path, "", "session_id('a'); session_start();")
    (root / "preload.php").write_text("<?php file_put_contents(__DIR__.'/starts', 'x', FILE_APPEND); sleep(1);")
    preload = ["--ini", f"opcache.preload={root}/preload.php", "--ini", "opcache.preload_user=root"]
    with Hayate(root, worker=root / "worker.php", workers=1, args=["--warmup", "off", *preload]) as server:
        assert requests.get(server.url + "/x", timeout=60).text == "classic 1"
        (app,) = server.status()["apps"]
        assert app["fallback"]["to"] == "classic" and "session" in app["fallback"]["why"], app
    assert (root / "starts").read_text() == "xx", "as a worker, and in classic mode"


def test_a_boot_that_was_declined_is_tried_again_when_nothing_can_replace_it(tmp_path) -> None:
    connect = "file_put_contents(__DIR__.'/boots', 'x', FILE_APPEND); if (is_file(__DIR__.'/busy')) { session_id('a'); session_start(); }"
    root = site(tmp_path, "", connect)
    (root / "index.php").unlink()
    with Hayate(root, worker=root / "worker.php", workers=1, args=["--warmup", "/x"]) as server:
        (root / "busy").touch()
        (app,) = server.status()["apps"]
        os.kill(app["zygote"], signal.SIGKILL)
        assert server.logged("no slower way that is as safe, so this one is tried again")
        assert wait_until(lambda: len((root / "boots").read_text()) > 3, 30)
        (root / "busy").unlink()
        assert wait_until(lambda: requests.get(server.url + "/x", timeout=60).ok, 30)


def test_a_front_controller_that_is_written_for_both_answers_in_classic_mode(tmp_path, peer) -> None:
    """It found the function there, which threw: a site that was slow for the connection of its boot was dead."""
    root = site(tmp_path, TALK, f"$peer = stream_socket_client('tcp://127.0.0.1:{peer}');")
    both = "<?php $h = fn () => print 'classic 1'; if (function_exists('hayate_handle_request')) { while (hayate_handle_request($h)) { } } else { $h(); }"
    (root / "index.php").write_text(both)
    with Hayate(root, worker=root / "worker.php", workers=1, args=["--warmup", "off"]) as server:
        assert until_fallen(server, "classic")["mode"] == "classic"
        assert {requests.get(server.url + "/x", timeout=60).text for _ in range(5)} == {"classic 1"}
