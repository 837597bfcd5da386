"""Files on a file system in memory (tmpfs, which /tmp is on many machines) are files: their positions belong to requests."""

from __future__ import annotations

import pathlib
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from lib.servers import Hayate

WORKER = """<?php
$file = fopen(getenv('LINES'), 'r');
fgets($file);
while (hayate_handle_request(static function () use ($file): void {
    usleep(1000);
    // More than PHP has read ahead.
    for ($n = 1; $n < 3000; $n++) {
        $line = fgets($file);
    }
    echo $line, fgets($file);
})) {
}
"""


@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_a_position_of_the_boot_is_where_it_was(rewind: str) -> None:
    """Each request reads on from where the boot left off, whoever else reads."""
    directory = pathlib.Path(tempfile.mkdtemp(dir="/dev/shm", prefix="hayate-"))
    directory.chmod(0o755)
    (directory / "worker.php").write_text(WORKER)
    (directory / "lines").write_text("".join(f"line {n}\n" for n in range(5000)))
    args = ["--rewind", rewind, "--warmup", "off", "--env", f"LINES={directory / 'lines'}"]
    with Hayate(directory, worker=directory / "worker.php", workers=4, args=args) as server, ThreadPoolExecutor(8) as clients:
        said = list(clients.map(lambda _: requests.get(server.url, timeout=60).text, range(80)))
    shutil.rmtree(directory)
    assert set(said) == {"line 2999\nline 3000\n"}
