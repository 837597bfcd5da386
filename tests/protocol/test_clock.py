"""The clock on the wall is set, forth and back, by hours and by thousands of years, while a server serves: it is shown, and decides nothing.

A library that is loaded before libc shifts it, for all of the server's processes; the clock of the machine stays as it is.
"""

from __future__ import annotations

import contextlib
import json

import pathlib
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timezone

import pytest
import requests

from lib.process import temporary_directory, wait_until
from lib.servers import GENERIC_WORKER, PHP_VERSION, Hayate, hayate_binary

HERE = pathlib.Path(__file__).parent
HOUR, YEAR = 3600, 31_556_952
#: The last second that HTTP can write.
LAST = 253_402_300_799

SLOW = "<?php for ($until = hrtime(true) + 3e9; hrtime(true) < $until;) usleep(50000); echo 'slow';"


class Clock:
    """Shifts the clock of whatever was started with it."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.library, self.file = directory / "clock.so", directory / "shift"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", self.library, HERE / "clock.c"], check=True)
        self.seconds = 0
        self.file.write_bytes(bytes(8))

    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self.library), "CLOCK_SHIFT": str(self.file)}

    def set(self, seconds: int) -> None:
        """So many seconds from now: one write, which nobody sees half of."""
        self.seconds = seconds
        with self.file.open("r+b", buffering=0) as file:
            file.write(struct.pack("q", seconds))

    def set_to(self, epoch: int) -> None:
        self.set(epoch - int(time.time()))

    def now(self) -> int:
        return int(time.time()) + self.seconds


@pytest.fixture(scope="module")
def clock() -> Iterator[Clock]:
    directory = temporary_directory("clock")
    yield Clock(directory)
    shutil.rmtree(directory)


@pytest.fixture
def site(clock) -> Iterator[pathlib.Path]:
    """With a host that sees the clock as well."""
    directory = temporary_directory("clock-site")
    clock.set(0)
    (directory / "public").mkdir()
    (directory / "public/time.php").write_text("<?php echo time();")
    (directory / "public/slow.php").write_text(SLOW)
    (directory / "public/length.php").write_text("<?php echo strlen(file_get_contents('php://input'));")
    (directory / "public/a.txt").write_text("static")
    shutil.copyfile(GENERIC_WORKER, directory / "worker.php")
    host = directory / "host"
    settings = " ".join(f"{name}={value}" for name, value in clock.environment().items())
    host.write_text(f'#!/bin/sh\n{settings} exec {hayate_binary().parent}/hayate-php{PHP_VERSION} "$@"\n')
    host.chmod(0o755)
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


class Clocked(Hayate):
    """With the clock before it."""

    clock: Clock

    def command(self) -> list[str]:
        return ["/usr/bin/env", *(f"{name}={value}" for name, value in self.clock.environment().items()), *super().command()]


def server(clock: Clock, site: pathlib.Path, mode: str, **more: object) -> Clocked:
    how = f'worker = "{site}/worker.php"\n' if mode == "worker" else ""
    config = f'[[app]]\nname = "a"\nroot = "{site}"\ndocument_root = "public"\nphp = "{site}/host"\nworkers = 3\n{how}'
    limits = '[limits]\nheader_timeout = "20s"\nbody_timeout = "20s"\nidle_timeout = "60s"\n'
    config = f'access_log = "{site}/access.log"\naccess_log_format = "json"\n{limits}{config}'
    config += 'request_timeout = "20s"\nqueue_timeout = "20s"\n'
    config += '[[app.rule]]\npath = "/rare"\nrate = { requests = 1, per = "2h", burst = 0 }\n'
    one = Clocked(config=config, access_log=None, **more)
    one.clock = clock
    return one


class Traffic:
    """Visitors who ask until they are told to stop, and what they saw."""

    def __init__(self, server: Hayate) -> None:
        self.server, self.faults, self.answers, self.over = server, [], 0, threading.Event()
        self.threads = [threading.Thread(target=self.visit, args=(path,)) for path in ("/a.txt", "/time.php", "/slow.php", "/length.php")]

    def visit(self, path: str) -> None:
        session = requests.Session()
        while not self.over.is_set():
            try:
                answer = session.post(self.server.url + path, data=b"x" * 70_000, timeout=60) if "length" in path else session.get(
                    self.server.url + path, timeout=60
                )
            except requests.RequestException as error:
                self.faults.append((path, error))
                return
            self.answers += 1
            right = {"/a.txt": "static", "/slow.php": "slow", "/length.php": "70000"}.get(path, answer.text)
            if answer.status_code != 200 or answer.text != right:
                self.faults.append((path, answer.status_code, answer.text))

    def __enter__(self) -> Traffic:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()


def date_of(server: Hayate) -> int:
    said = requests.get(f"{server.url}/a.txt", timeout=60).headers["Date"]
    day = datetime.strptime(said, "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=timezone.utc)
    return int((day - datetime(1970, 1, 1, tzinfo=timezone.utc)).total_seconds())


@pytest.mark.parametrize("mode", ["classic", "worker"])
def test_clocks_that_jump_under_traffic(clock, site, mode) -> None:
    with server(clock, site, mode) as one, contextlib.ExitStack() as stack:
        first = requests.get(f"{one.url}/rare", timeout=60).status_code
        # One who takes a while for a head, and one who waits between two requests: longer than all jumps.
        patient = [stack.enter_context(socket.create_connection(("127.0.0.1", one.port), timeout=60)) for _ in range(2)]
        patient[0].sendall(b"GET /a.txt HTTP/1.1\r\nHost: a\r\n")
        patient[1].sendall(b"GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n")
        assert patient[1].recv(9) == b"HTTP/1.1 "
        begun = time.monotonic()
        with Traffic(one) as traffic:
            for epoch in (
                time.time() + 5 * HOUR,
                time.time() - 5 * HOUR,
                10,
                2**31 + 10,
                time.time() + 60 * YEAR,
                LAST + 10 * YEAR,
                -YEAR,
                time.time(),
            ):
                clock.set_to(int(epoch))
                shown = min(max(clock.now(), 0), LAST)
                assert wait_until(lambda shown=shown: abs(date_of(one) - shown) < 30), (epoch, date_of(one))
                inside = int(requests.get(f"{one.url}/time.php", timeout=60).text)
                assert abs(inside - clock.now()) < 30, epoch
                # What was counted in the present hour is.
                assert requests.get(f"{one.url}/rare", timeout=60).status_code == 429, epoch
            clock.set(0)
        assert not traffic.faults, traffic.faults[:5]
        if time.monotonic() - begun < 15:
            patient[0].sendall(b"\r\n")
            assert patient[0].recv(12) == b"HTTP/1.1 200"
            patient[1].sendall(b"GET /time.php HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            assert b"HTTP/1.1 200" in b"".join(iter(lambda: patient[1].recv(65536), b""))
        assert first != 429
        (app,) = one.status()["apps"]
        assert not any(app["restarts"].values()), app["restarts"]
        assert one.reload().returncode == 0
        lines = [json.loads(line) for line in (site / "access.log").read_text().splitlines()]
        assert len([line for line in lines if line["status"] == 200]) >= traffic.answers
        assert all(0 <= line["duration"] < 60 and line["time"] >= 0 for line in lines)


def test_a_real_path_of_the_boot_is_not_believed_for_the_hours_that_the_clock_went_back(clock, site) -> None:
    """`realpath_cache_ttl` is a second; the boot's paths expire, by the clock of before, in ten hours."""
    for name in ("one", "two"):
        (site / name).mkdir()
    (site / "current").symlink_to("one")
    (site / "worker.php").write_text(
        f"<?php realpath('{site}/current'); while (hayate_handle_request(function () {{ echo basename(realpath('{site}/current')); }})) {{}}"
    )
    clock.set(10 * HOUR)
    with server(clock, site, "worker", args=("--ini", "realpath_cache_ttl=1", "--warmup", "off")) as one:

        def seen() -> str:
            return requests.get(f"{one.url}/time.php", timeout=60).text

        assert seen() == "one"
        clock.set(0)
        (site / "next").symlink_to("two")
        (site / "next").rename(site / "current")
        assert wait_until(lambda: seen() == "two"), seen()
