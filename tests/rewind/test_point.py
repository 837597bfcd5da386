"""Where hayate_handle_request() is called from, and workers that cannot start: requests are answered, or it is said why not."""

from __future__ import annotations

import os

import pytest
import requests

from lib.process import wait_until

from . import modes

LOOP = r"""
$loop = static function () {
    $n = 0;
    while (hayate_handle_request(function () use (&$n) {
        echo 'visit ', ++$n;
    })) {
    }
};
"""
FIBER = LOOP + "(new Fiber($loop))->start();"
#: Each level takes some 400 bytes of the C stack.
DEEP = LOOP + r"""
$down = static function (int $levels) use (&$down, $loop) {
    $levels > 0 ? array_map($down, [$levels - 1]) : $loop();
};
$down(8000);
"""


@pytest.mark.parametrize("boot", ["shared", "private"])
@pytest.mark.parametrize(("script", "why"), [(FIBER, "within a Fiber"), (DEEP, "a megabyte deep")], ids=["fiber", "deep"])
def test_where_it_cannot_be_gone_back_to_each_request_is_forked(directory, script, why, boot) -> None:
    modes.write(directory, script)
    with modes.hayate(directory, "on", boot, workers=2) as server:
        assert set(modes.many(server, 40)) == {"visit 1"}
        app = modes.application(server)
        assert app["rewind"]["tracking"] == "fork", app
        # With a private boot it is a worker that finds out, and its zygote ends.
        assert boot == "private" or app["restarts"] == {}, app
        assert app["fallback"]["to"] == "fork" and why in app["fallback"]["why"], app
        assert server.logged(why)
        assert server.reload().returncode == 0
        assert set(modes.many(server, 10)) == {"visit 1"}


@pytest.mark.parametrize("script", [FIBER, DEEP], ids=["fiber", "deep"])
@pytest.mark.parametrize("boot", ["shared", "private"])
def test_with_forks_it_may_be_called_from_anywhere(directory, script, boot) -> None:
    modes.write(directory, script)
    with modes.hayate(directory, "fork", boot, workers=2) as server:
        assert set(modes.many(server, 40)) == {"visit 1"}
        assert modes.application(server)["fallback"] is None and modes.application(server)["restarts"] == {}


LATER = r"""
if (!file_exists(__DIR__.'/again')) {
    while (hayate_handle_request(fn () => print('rewound'))) {
    }
    return;
}
sleep(2);
(new Fiber(function () {
    while (hayate_handle_request(fn () => print('forked'))) {
    }
}))->start();
"""


@pytest.mark.parametrize("boot", ["shared", "private"])
def test_requests_wait_for_what_takes_the_place_of_a_boot_that_cannot_serve(directory, boot) -> None:
    """The second boot finds out that each request is to be forked, and a third one does so: nobody is turned away meanwhile."""
    modes.write(directory, LATER)
    with modes.hayate(directory, "on", boot, workers=2) as server:
        assert modes.get(server) == "rewound"
        (directory / "again").touch()
        os.kill(modes.application(server)["zygote"], 9)
        answers = set()

        def forked() -> bool:
            answers.add(modes.get(server))
            assert modes.application(server)["unavailable"] is None
            return "forked" in answers

        assert wait_until(forked, 60), answers
        assert modes.application(server)["fallback"]["to"] == "fork"
        assert answers <= {"rewound", "forked"}


OPENED = r"""
$file = fopen(__DIR__.'/data', 'r');
while (hayate_handle_request(function () use ($file) {
    echo fgets($file);
    if (isset($_GET['die'])) {
        posix_kill(getmypid(), 9);
    }
})) {
}
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="the server has to become another user")
@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_workers_that_cannot_start_make_the_application_unavailable(directory, rewind) -> None:
    """The file of the boot was made unreadable: no worker can have a position of its own in it."""
    modes.write(directory, OPENED)
    data = directory / "data"
    data.write_text("a line\n")
    data.chmod(0o644)
    with modes.hayate(directory, rewind, "shared", workers=1, user="www-data") as server:
        assert [modes.get(server) for _ in range(3)] == ["a line\n"] * 3
        assert modes.application(server)["state"] == "serving" and modes.application(server)["unavailable"] is None
        data.chmod(0)
        # Not a GET: that is tried once more, and waits for a worker. So does this one if the worker ends before it has taken it: 503.
        assert requests.post(server.url + "/?die=1", timeout=90).status_code in (502, 503)
        assert wait_until(lambda: modes.application(server)["unavailable"] is not None)
        for _ in range(20):
            app = modes.application(server)
            assert str(data) in app["unavailable"] and "cannot be opened again: Permission denied" in app["unavailable"]
            assert app["state"] == "failing"
        assert requests.get(server.url, timeout=60).status_code == 503
        assert server.logged(str(data)) and server.logged("Make it readable again")
        data.chmod(0o644)
        assert wait_until(lambda: modes.application(server)["unavailable"] is None, 60)
        assert modes.get(server) == "a line\n"
        assert modes.application(server)["state"] == "serving"


EXITS = r"""
$libc = FFI::cdef('void exit(int);');
while (hayate_handle_request(function () use ($libc) {
    echo 'here';
    if (isset($_GET['exit'])) {
        $libc->exit(70);
    }
})) {
}
"""


@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_a_worker_that_ends_by_itself_says_why(directory, rewind) -> None:
    modes.write(directory, EXITS)
    with modes.hayate(directory, rewind, "shared", workers=1) as server:
        assert modes.get(server) == "here"
        assert requests.post(server.url + "/?exit=1", timeout=60).status_code == 502
        assert modes.get(server) == "here"
        assert modes.application(server)["restarts"] == {"exit_70": 1}
        assert server.logged("ended its process by exit(70) of libc")


TIMER = r"""
$libc = FFI::cdef('
    struct itimerval { long interval, interval_us, value, value_us; };
    int setitimer(int which, const struct itimerval *to, struct itimerval *before);
');
$half = $libc->new('struct itimerval');
$half->value_us = 500000;
$libc->setitimer(1, FFI::addr($half), null);
while (hayate_handle_request(function () {
    for ($end = getrusage()['ru_utime.tv_sec'] + 2; getrusage()['ru_utime.tv_sec'] < $end;) {
        md5(str_repeat('x', 10000));
    }
    echo 'here';
})) {
}
"""


@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_a_timer_of_the_boot_strikes_no_request(directory, rewind) -> None:
    """One of processor time is stopped when the boot is over, as by a fork."""
    modes.write(directory, TIMER)
    with modes.hayate(directory, rewind, "private", workers=1) as server:
        assert [modes.get(server) for _ in range(2)] == ["here"] * 2
        assert modes.application(server)["restarts"] == {}
