"""What the boot sets that PHP ties to a request is there in every request, as under php-fpm, which boots for each.

Settings and their original values, mbstring's encodings, handlers of sessions, shutdown functions. And what the kernel
keeps of a boot is found out when a request uses it.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest
import requests

from lib.servers import Hayate, NginxFpm

from . import modes

SITE = pathlib.Path(__file__).parent / "boot"
INI = {"display_errors": "0", "log_errors": "1", "memory_limit": "128M", "zlib.output_compression": "0"}
ENDS = ["", "exit", "fatal", "memory"]


def answer(url: str, end: str) -> tuple[int, str | None, str]:
    """Status, cookies and body."""
    response = requests.get(url, params={"end": end, "x": "same length"[: 11 - len(end)]}, timeout=60)
    return response.status_code, (response.headers.get("Set-Cookie") or "").partition("=")[0], response.text


@pytest.fixture(scope="module")
def expected() -> Iterator[dict[str, tuple]]:
    with NginxFpm(SITE, index="worker.php", ini={**INI, **modes.ONCE}, workers=1) as fpm:
        yield {end: answer(fpm.url + "/", end) for end in ENDS}


@pytest.mark.parametrize("warmup", ["off", "/"])
@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_as_under_php_fpm(rewind: str, warmup: str, expected: dict[str, tuple]) -> None:
    args = ["--rewind", rewind, "--rewind-verify", "1", "--warmup", warmup]
    with Hayate(SITE, worker=SITE / "worker.php", workers=1, ini=INI, args=args) as hayate:
        for end in [*ENDS, *ENDS]:
            said = answer(hayate.url + "/", end)
            assert said == expected[end]
        (app,) = hayate.status()["apps"]
    assert app["restarts"] == {} and app["fallback"] is None and app["cold_boot"] is None
    assert "shutdown of the boot: Uncaught Error" in expected["fatal"][2]
    assert expected[""][2].endswith("shutdown of the boot: no error\nand another\nshutdown of the request")


def test_the_boots_shutdown_functions_run_at_the_end_where_state_is_kept() -> None:
    with Hayate(SITE, worker=SITE / "worker.php", workers=1, ini=INI, args=["--rewind", "off"]) as hayate:
        status, _, body = answer(hayate.url + "/", "")
        assert status == 200 and body.endswith("shutdown of the request") and "of the boot" not in body
        sessions = '"open",\n        "read",\n        "write kept|i:1;",\n        "close"'
        assert sessions in body, "its handler of sessions is there"


LOG = """<?php
while (hayate_handle_request(function () {
    preg_match('/^flags:\\s*(\\d+)/m', file_get_contents('/proc/self/fdinfo/2'), $found);
    stream_set_blocking(fopen('php://stderr', 'w'), false);
    echo octdec($found[1]) & 04000;
})) {
}
"""


@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_what_all_workers_log_to_stays_blocking(rewind: str, tmp_path: pathlib.Path) -> None:
    """php://stderr is a duplicate of it: flags are shared, and lines would be lost while the log is slow."""
    (tmp_path / "worker.php").write_text(LOG)
    args = ["--rewind", rewind, "--warmup", "off"]
    with Hayate(tmp_path, worker=tmp_path / "worker.php", workers=1, args=args) as hayate:
        assert [requests.get(hayate.url, timeout=60).text for _ in range(3)] == ["0", "0", "0"]


EVENTS = """<?php
$libc = FFI::cdef('
    int epoll_create1(int); int epoll_ctl(int, int, int, void *); int timerfd_create(int, int);
    int timerfd_settime(int, int, void *, void *);
    int inotify_init(); int inotify_add_watch(int, const char *, unsigned);
');
$epoll = $libc->epoll_create1(0);
$timer = $libc->timerfd_create(0, 0);
$inotify = $libc->inotify_init();
while (hayate_handle_request(function () use ($libc, $epoll, $timer, $inotify) {
    $event = FFI::new('uint64_t[4]');
    echo match ($_GET['use'] ?? '') {
        'epoll' => $libc->epoll_ctl($epoll, 1, $timer, $event),
        'timer' => $libc->timerfd_settime($timer, 0, $event, null),
        'inotify' => $libc->inotify_add_watch($inotify, '/', 1) > 0 ? 0 : 1,
        'own' => $libc->epoll_ctl($libc->epoll_create1(0), 1, $timer, $event),
        default => 'nothing',
    };
})) {
}
"""


def test_an_event_loop_of_the_boot_is_not_used_by_requests_unnoticed(tmp_path: pathlib.Path) -> None:
    """The kernel keeps what an epoll, a timer or an inotify was told: such a worker is replaced."""
    (tmp_path / "worker.php").write_text(EVENTS)
    args = ["--rewind-verify", "1", "--warmup", "off"]
    with Hayate(tmp_path, worker=tmp_path / "worker.php", workers=1, ini={"ffi.enable": "1"}, args=args) as hayate:

        def replaced(use: str) -> int:
            before = hayate.status()["apps"][0]["restarts"].get("rewind_connection", 0)
            answers = [requests.get(hayate.url, params={"use": what}, timeout=60).text for what in (use, "")]
            assert answers == ["nothing" if use == "" else "0", "nothing"]
            return hayate.status()["apps"][0]["restarts"].get("rewind_connection", 0) - before

        assert {use: replaced(use) for use in ("", "own", "epoll", "timer", "inotify")} == {
            "": 0,
            "own": 0,
            "epoll": 1,
            "timer": 1,
            "inotify": 1,
        }
        assert hayate.status()["apps"][0]["boot"] == "private"
