"""What PHP code says, and has others say, on a zygote's channel while the application boots: it harms its own application at most."""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import resource
import signal
import time

import pytest
import requests

from lib import site
from lib.process import wait_until
from lib.servers import GENERIC_WORKER, Hayate

# The channel is descriptor 3 until a worker is ready. Messages are as in host/layout.h.
BOOT = r"""<?php
if (file_exists(__DIR__ . '/hostile')) {
    $libc = FFI::cdef('ssize_t send(int, const char *, size_t, int); int dup2(int, int); int fork(void); void _exit(int);', 'libc.so.6');
    $message = fn(int $kind, int $value, string $text) => pack('VVVVV', $kind, 0xffffffff, 0, $value, strlen($text)) . $text;
    file_put_contents(__DIR__ . '/boots', 'x', FILE_APPEND);
    require __DIR__ . '/hostile';
}
require '%s';
"""
# What holds the channel says something without end, until nobody is there to hear it.
REMARKS = r"""<?php
$remark = $message(25, 0, 'a remark without end');
if ($libc->fork() === 0) {
    for ($i = 0; $i < 3000000 && $libc->send(3, $remark, strlen($remark), 0x4000) > 0; $i++);
    $libc->_exit(0);
}
usleep(500000);
"""
# As above, by programs that the end of the zygote does not end.
ORPHANS = r"""<?php
$libc->dup2(3, 50);
$flood = 'import socket, time, pathlib
s, end = socket.socket(fileno=50), time.monotonic() + 28
try:
    while time.monotonic() < end: s.send(bytes.fromhex("17000000" + "00" * 16))
finally:
    pathlib.Path("%s").touch()';
for ($i = 0; $i < 6; $i++) {
    proc_open(['/usr/bin/python3', '-c', sprintf($flood, __DIR__ . "/over-$i")], [], $pipes);
}
unlink(__DIR__ . '/hostile');
usleep(500000);
posix_kill(getmypid(), 9);
"""
AGAIN = r"""<?php
$again = $message(18, 2, 'once more');
$libc->send(3, $again, strlen($again), 0);
$libc->_exit(0);
"""


@pytest.fixture
def server(hayate_command, tmp_path):
    root, other = site.make(tmp_path), site.make(tmp_path / "other")
    boot = tmp_path / "worker.php"
    boot.write_text(BOOT % GENERIC_WORKER)
    config = f"""
[[app]]
name = "hostile"
root = "{root}"
hosts = ["hostile.test"]
worker = "{boot}"
warmup = []
workers = 1
ini = {{ "ffi.enable" = "1" }}
[[app]]
name = "other"
root = "{other}"
workers = 1
"""
    with Hayate(config=config) as server:
        server.directory = tmp_path
        yield server


def app(server: Hayate) -> dict:
    return next(app for app in server.status()["apps"] if app["name"] == "hostile")


def boots(server: Hayate) -> int:
    path = server.directory / "boots"
    return path.stat().st_size if path.exists() else 0


def boot_again(server: Hayate, how: str) -> None:
    """Has the application boot anew, with this."""
    (server.directory / "hostile").write_text(how)
    os.kill(app(server)["zygote"], signal.SIGKILL)


def test_remarks_without_end_are_few_lines_and_the_zygotes_end(server) -> None:
    front = server.front
    boot_again(server, REMARKS)
    assert wait_until(lambda: "the zygote says more than there is to say" in server.log(), 60), server.log_tail()
    assert requests.get(server.url + "/ok.php?x", timeout=60).text == "ok x"
    (server.directory / "hostile").unlink()
    assert wait_until(lambda: app(server)["unavailable"] is None and app(server)["workers"], 60), server.log_tail()
    assert server.front == front
    assert server.log().count("a remark without end") <= 100 * boots(server)


def test_messages_that_outlive_the_zygote_do_not_keep_the_front(server) -> None:
    front = server.front
    boot_again(server, ORPHANS)
    assert wait_until(lambda: len(list(server.directory.glob("over-*"))) == 6, 60)
    assert wait_until(lambda: requests.get(server.url + "/ok.php?x", timeout=60).text == "ok x", 60)
    assert server.front == front, server.log_tail()
    assert wait_until(lambda: app(server)["unavailable"] is None and app(server)["workers"], 60), server.log_tail()


def test_a_boot_that_asks_to_be_done_again_and_again_has_failed(server) -> None:
    boot_again(server, AGAIN)
    assert wait_until(lambda: app(server)["unavailable"] is not None, 20), (boots(server), server.log_tail())
    assert "once more" in app(server)["unavailable"]
    (server.directory / "hostile").unlink()
    assert wait_until(lambda: app(server)["unavailable"] is None and app(server)["workers"], 60), server.log_tail()


def children(pid: int) -> list[int]:
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def lives(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def test_a_worker_that_is_forked_while_the_front_has_no_open_file_left_can_be_ended(hayate_command, tmp_path) -> None:
    root = site.make(tmp_path)
    (root / "loop.php").write_text("<?php set_time_limit(0); while (true);")
    config = f'[[app]]\nroot = "{root}"\nworkers = 1\nrequest_timeout = "1s"\n'
    with Hayate(config=config) as server, concurrent.futures.ThreadPoolExecutor(1):
        front, (status,) = server.front, server.status()["apps"]
        zygote, (worker,) = status["zygote"], (worker["pid"] for worker in status["workers"])
        limits = resource.prlimit(front, resource.RLIMIT_NOFILE)
        resource.prlimit(front, resource.RLIMIT_NOFILE, (3, limits[1]))
        os.kill(worker, signal.SIGKILL)
        assert wait_until(lambda: [pid for pid in children(zygote) if pid != worker and lives(pid)], 60)
        # The front hears of it a moment later.
        time.sleep(1)
        resource.prlimit(front, resource.RLIMIT_NOFILE, limits)
        (new,) = (pid for pid in children(zygote) if pid != worker and lives(pid))
        assert requests.get(server.url + "/loop.php", timeout=60).status_code == 504
        assert wait_until(lambda: not lives(new), 20), server.log_tail()
        assert requests.get(server.url + "/ok.php?x", timeout=60).text == "ok x"
