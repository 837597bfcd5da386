"""Requests that leave what a rewind cannot take back: answered, the worker replaced, the operator told why."""

from __future__ import annotations

import requests

from lib.process import wait_until
from lib.servers import Hayate

WORKER = """<?php
$opened = fopen(__FILE__, 'r');
while (hayate_handle_request(function () use ($opened) {
    if (isset($_GET['child'])) { proc_open(['sleep', '5'], [], $pipes); }
    echo getmypid();
})) {
}
"""


def test_once_a_minute_for_each_reason(tmp_path) -> None:
    (tmp_path / "worker.php").write_text(WORKER)
    with Hayate(tmp_path, worker=tmp_path / "worker.php", workers=1, args=["--rewind", "on"]) as server:
        # Far enough apart not to be called unfit for rewinding.
        pids = []
        for _ in range(3):
            pids.append(requests.get(server.url + "/?child=1", timeout=60).text)
            pids += [requests.get(server.url + "/", timeout=60).text for _ in range(10)]
        assert len(set(pids)) == 4, "each child costs its worker, and nothing else does"
        assert wait_until(lambda: server.status()["apps"][0]["restarts"] == {"rewind_child": 3}), server.status()["apps"][0]
        assert server.logged("rewind_child")
        said = [line for line in server.log().splitlines() if "rewind_child" in line]
        assert len(said) == 1, said
        assert "left a child process behind" in said[0] and "To avoid it: wait for child processes" in said[0]
        assert 'app="' in said[0]
