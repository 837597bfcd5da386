"""Development mode: where the time of a request goes is told to the browser."""

from __future__ import annotations

import re

import pytest
import requests

from lib.servers import Hayate

WORKER = """<?php
while (hayate_handle_request(function () {
    if (isset($_GET['own'])) { header('Server-Timing: db;dur=1'); }
    usleep(20000);
    echo 'x';
})) {
}
"""


def timing(server: Hayate, path: str = "/") -> dict[str, float]:
    header = requests.get(server.url + path, timeout=15).headers.get("Server-Timing", "")
    return {name: float(value) for name, value in re.findall(r"(\w+);dur=([\d.]+)", header)}


@pytest.mark.parametrize("mode", ["classic", "worker"])
def test_server_timing(tmp_path, mode) -> None:
    (tmp_path / "index.php").write_text("<?php usleep(20000); echo 'x';")
    (tmp_path / "worker.php").write_text(WORKER)
    worker = {"worker": tmp_path / "worker.php"} if mode == "worker" else {}
    with Hayate(tmp_path, workers=1, args=["--dev", "--warmup", "off"] if worker else ["--dev"], **worker) as server:
        first, second = timing(server), timing(server)
        assert set(first) == {"queue", "php"} and first["php"] >= 20
        assert set(second) == ({"queue", "php", "rewind"} if worker else {"queue", "php"})
        assert second.get("rewind", 1) > 0
        if worker:
            assert timing(server, "/?own=1")["db"] == 1, "beside the application's own"
    with Hayate(tmp_path, workers=1, **worker) as server:
        assert timing(server) == {}
