"""A worker that boots by itself while others serve, and cannot be served from as it has booted: nobody's request is lost for it.

What it did may be what a boot does now and then, so it boots once more. When it does so again, the application boots beside the workers that serve: in the
way in which that can be done, which is a slower one or without warm-up requests.
"""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lib.process import wait_until
from lib.servers import Hayate

from . import modes
from .test_opened_again import PRIVATE, hayate, prepare

#: It goes on for as long as somebody wants.
REQUEST = """
    if ($v === 'slow') {
        for ($i = 0; $i < 3000 && !file_exists("$d/go"); $i++) {
            usleep(10000);
            clearstatcache();
        }
    }
    echo $v;
"""
#: Once, or each time from then on.
ROTATES = "if (@filesize(\"$d/out\") > 10) { rename(\"$d/out\", \"$d/out.1\"); } $f = fopen(\"$d/out\", 'a');"
EMPTIES = "if (file_exists(\"$d/later\")) { file_put_contents(\"$d/out\", ''); } $f = fopen(\"$d/out\", 'a');"
#: A warm-up request leaves something behind, once there is reason to.
LEAVES = "if (isset($_SERVER['HAYATE_WARMUP']) && file_exists(\"$d/later\")) { $GLOBALS['left'] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0); }"


@contextmanager
def one_worker_is_busy(server: Hayate, directory: pathlib.Path) -> Iterator[None]:
    """With a request that is answered at the end, as it should be."""

    def busy() -> list[int]:
        return [worker["pid"] for worker in modes.application(server)["workers"] if worker["state"] == "serving"]

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        slow = pool.submit(modes.get, server, "v=slow")
        try:
            assert wait_until(lambda: len(busy()) == 1), modes.application(server)
            (it,) = busy()
            yield
            assert pathlib.Path(f"/proc/{it}").exists() and not slow.done()
        finally:
            (directory / "go").touch()
        assert slow.result() == "slow"


def kill_who_idles(server: Hayate) -> None:
    """Others take their places. One that still boots is no idle one yet."""

    def idle() -> list[int]:
        return [worker["pid"] for worker in modes.application(server)["workers"] if worker["state"] == "idle"]

    assert wait_until(lambda: len(idle()) == len(modes.application(server)["workers"]) - 1 > 0), modes.application(server)
    for pid in idle():
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(("rewind", "boot"), PRIVATE)
def test_a_later_boot_that_rotates_a_log_is_done_once_more(rewind: str, boot: str, directory: pathlib.Path) -> None:
    """And the application is rewound as before."""
    prepare(directory, ROTATES, REQUEST, {"out": ""})
    with hayate(directory, rewind, boot, workers=2) as server:
        with one_worker_is_busy(server, directory):
            (directory / "out").write_text("many lines of the past\n")
            kill_who_idles(server)
            assert wait_until(lambda: modes.application(server)["restarts"] == {"signal_9": 1, "boot_failed": 1}), modes.application(server)
            assert wait_until(lambda: modes.get(server, "v=Ada") == "Ada")
        app = modes.application(server)
        assert (app["fallback"], app["mode"], app["zygote_deaths"]) == (None, "worker", 0), app
        assert [(directory / name).stat().st_size for name in ("out.1", "out")] == [23, 0]
        assert server.logged("boots once more: the boot left the file")


@pytest.mark.parametrize(("rewind", "boot"), PRIVATE)
def test_a_later_boot_that_is_declined_twice_makes_another_generation(rewind: str, boot: str, directory: pathlib.Path) -> None:
    """In classic mode, until the next reload, by which it runs as configured."""
    prepare(directory, EMPTIES, REQUEST, {"out": ""})
    with hayate(directory, rewind, boot, workers=2) as server:
        with one_worker_is_busy(server, directory):
            (directory / "later").touch()
            kill_who_idles(server)
            assert wait_until(lambda: modes.application(server)["fallback"] is not None), (modes.application(server), server.log()[-2000:])
            assert modes.get(server, "v=Ada") == "Ada"
        app = modes.application(server)
        assert app["mode"] == "classic" and app["fallback"]["why"].startswith("twice in a row a worker that was started beside others"), app
        assert server.logged("Until the next reload it runs in classic mode")
        (directory / "later").unlink()
        assert server.run("reload").returncode == 0
        assert modes.application(server)["mode"] == "worker" and modes.get(server, "v=Ada") == "Ada"


@pytest.mark.parametrize(("rewind", "boot"), PRIVATE)
def test_where_there_is_no_slower_way_the_others_go_on(rewind: str, boot: str, directory: pathlib.Path) -> None:
    """And who is missing comes back when it can."""
    prepare(directory, EMPTIES, REQUEST, {"out": ""})
    (directory / "index.php").unlink()
    with hayate(directory, rewind, boot, workers=2) as server:
        with one_worker_is_busy(server, directory):
            (directory / "later").touch()
            kill_who_idles(server)
            assert wait_until(lambda: modes.application(server)["restarts"].get("boot_failed", 0) >= 2), modes.application(server)
            assert server.logged("There is no slower way that is as safe")
        assert modes.get(server, "v=Ada") == "Ada"
        assert "emptied or replaced it" in modes.application(server)["boot_error"]
        (directory / "later").unlink()
        assert wait_until(lambda: len([worker for worker in modes.application(server)["workers"] if worker["state"] == "idle"]) == 2)
        assert modes.application(server)["zygote_deaths"] == 0


@pytest.mark.parametrize(("rewind", "boot"), PRIVATE)
def test_warm_up_requests_that_fail_later(rewind: str, boot: str, directory: pathlib.Path) -> None:
    """The application boots beside, and without them."""
    prepare(directory, "", LEAVES + REQUEST, {})
    with hayate(directory, rewind, boot, workers=2, warmup="/") as server:
        assert modes.application(server)["cold_boot"] is None
        with one_worker_is_busy(server, directory):
            (directory / "later").touch()
            kill_who_idles(server)
            assert wait_until(lambda: modes.application(server)["cold_boot"] is not None), (modes.application(server), server.log()[-2000:])
            assert modes.get(server, "v=Ada") == "Ada"
        app = modes.application(server)
        assert (app["fallback"], app["mode"]) == (None, "worker"), app
