"""What logs are written to takes nothing any more: a pipe that nobody reads, a terminal that is stopped. Requests, healthz and SIGTERM
go on; what was lost is counted, and said once the log flows again."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
import threading
from collections.abc import Iterator

import pytest
import requests

from lib import site
from lib.process import wait_until
from lib.servers import Hayate, free_port

#: Bytes: more than a pipe and the queue of the writer hold.
FLOOD = 6 << 20


class Stalled(Hayate):
    """Its standard error, and standard output, are `fd`; nobody reads what comes out of the other end until a test does."""

    def __init__(self, *arguments, fd: int, **more) -> None:
        super().__init__(*arguments, **more)
        self._fd = fd

    def spawn(self, env: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            self.command(), stdin=subprocess.DEVNULL, stdout=self._fd, stderr=self._fd, start_new_session=True
        )
        os.close(self._fd)

    def log(self) -> str:
        return "(nobody reads it)"


@pytest.fixture(params=["pipe", "terminal"])
def ends(request) -> Iterator[tuple[int, int]]:
    """(what a reader would read, what the server writes to)"""
    reader, writer = os.pipe() if request.param == "pipe" else pty.openpty()
    yield reader, writer
    with contextlib.suppress(OSError):
        os.close(reader)


def lost_lines(metrics: str, name: str = "hayate_log_lost") -> int:
    text = requests.get(f"http://{metrics}/metrics", timeout=60).text
    return int(re.search(rf"(?m)^{name}_total (\d+)$", text)[1])


def test_standard_error_that_nobody_reads(hayate_command, tmp_path, ends) -> None:
    root = site.make(tmp_path)
    (root / "flood.php").write_text('<?php for ($i = 0; $i < 500; $i++) { error_log(str_repeat("x", 1000)); } echo "said";')
    reader, writer = ends
    metrics = f"127.0.0.1:{free_port()}"
    with Stalled(root, workers=2, access_log="-", args=["--metrics", metrics], fd=writer) as server:
        for _ in range(FLOOD // (500 * 1000)):
            assert requests.get(server.url + "/flood.php", timeout=60).text == "said"
        assert wait_until(lambda: lost_lines(metrics) > 0)
        assert requests.get(server.url + "/ok.php?on", timeout=60).text == "ok on"
        assert requests.get(server.url + "/plain.txt", timeout=60).status_code == 200
        assert requests.get(f"http://{metrics}/healthz", timeout=60).status_code == 200
        assert server.run("status").returncode == 0
        # Once it is read again, the log says what is missing.
        got = bytearray()

        def read() -> None:
            with contextlib.suppress(OSError):
                while block := os.read(reader, 1 << 20):
                    got.extend(block)

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        assert wait_until(lambda: b"lines of this log were lost" in got), bytes(got[-2000:])
        assert wait_until(lambda: b"/flood.php" in got)
        assert requests.get(server.url + "/error.php", timeout=60).status_code == 200
        assert wait_until(lambda: b"a line of mine" in got)
    thread.join(10)


def test_sigterm_with_a_standard_error_that_nobody_reads(hayate_command, tmp_path, ends) -> None:
    root = site.make(tmp_path)
    (root / "flood.php").write_text('<?php for ($i = 0; $i < 800; $i++) { error_log(str_repeat("x", 1000)); } echo "said";')
    with Stalled(root, workers=1, access_log="-", fd=ends[1]) as server:
        assert requests.get(server.url + "/flood.php", timeout=60).text == "said"
        # Before drain_timeout is over.
        server.stop_timeout = 28
        assert server.stop() == 0
