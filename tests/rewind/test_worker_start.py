"""What a worker does by itself before its first request is there for each, as the boot's is; and neither spoils it."""

from __future__ import annotations

import re
import socket
import time

import pytest
import requests

from lib.process import ServerError, wait_until

from . import modes

WARM = ("--connections", "warm")


def worker(step: str, handler: str, boot: str = "") -> str:
    return f"""
{boot}
hayate_on_worker_start(function () {{ {step} }});
while (hayate_handle_request(function () {{ {handler} }})) {{
}}
"""


def answers(directory, script: str, count: int = 6, rewind: str = "on") -> set[str]:
    modes.write(directory, script)
    with modes.hayate(directory, rewind, "shared", workers=2, args=WARM) as server:
        found = set(modes.many(server, count))
        assert modes.application(server)["restarts"] == {}, modes.application(server)
        assert "was given threw" not in server.log()
        return found


def test_its_encodings_hold(directory) -> None:
    step = "mb_internal_encoding('EUC-JP'); mb_detect_order('ASCII,SJIS');"
    handler = "echo mb_internal_encoding(), mb_substitute_character(), json_encode(mb_detect_order()); mb_internal_encoding('UTF-8');"
    boot = "mb_internal_encoding('SJIS'); mb_substitute_character(0x21);"
    assert answers(directory, worker(step, handler, boot)) == {'EUC-JP33["ASCII","SJIS"]'}
    follows = "ini_set('internal_encoding', 'ISO-8859-1'); echo mb_internal_encoding();"
    assert answers(directory, worker("mb_internal_encoding('UTF-8');", follows)) == {"UTF-8"}
    assert answers(directory, worker("", follows)) == {"ISO-8859-1"}


def test_its_shutdown_functions_run_with_each_request(directory) -> None:
    step = "register_shutdown_function(fn () => print('step '));"
    handler = "register_shutdown_function(fn () => print('own ')); echo 'hi ';"
    boot = "register_shutdown_function(fn () => print('boot '));"
    assert answers(directory, worker(step, handler, boot)) == {"hi boot step own "}
    assert answers(directory, worker(step, handler)) == {"hi step own "}
    both = "register_shutdown_function('told');"
    told = "function told() { echo 'told '; }"
    assert answers(directory, worker(both, both + "echo 'hi ';", told)) == {"hi told told "}


@pytest.mark.parametrize("rewind", ["on", "fork", "off"])
def test_each_process_finds_itself_below_proc(directory, rewind) -> None:
    """PHP keeps real paths, and who boots is another process than who serves."""
    look = "file_get_contents('/proc/self/status'); realpath('/dev/fd');"
    handler = "preg_match('/^Pid:\\\\s*(\\\\d+)/m', file_get_contents('/proc/self/status'), $m); echo json_encode((int) $m[1] === posix_getpid());"
    assert answers(directory, worker(look, handler, look), rewind=rewind) == {"true"}


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("str_repeat('x', 300 << 20);", "a fatal error ended what hayate_on_worker_start() was given"),
        ("session_start();", "started a session"),
    ],
    ids=["memory", "session"],
)
def test_what_would_spoil_each_request_is_said(directory, step, said) -> None:
    """The first one looked like exit(), and each request got 500 without a word."""
    modes.write(directory, worker(step, "echo 'hi';"))
    with pytest.raises(ServerError, match=re.escape(said)), modes.hayate(directory, "on", "shared", args=WARM):
        pass


def test_it_handles_no_requests(directory) -> None:
    step = "try { hayate_handle_request(fn () => 1); } catch (Error $e) { $GLOBALS['said'] = $e->getMessage(); }"
    said = "hayate_handle_request() must not be called by what hayate_on_worker_start() was given"
    assert answers(directory, worker(step, "echo $GLOBALS['said'] ?? 'nothing';")) == {said}


@pytest.mark.parametrize("rewind", ["on", "fork", "off"])
def test_a_boot_that_ignores_its_children_costs_no_worker(directory, rewind) -> None:
    """Its processes do as it says; those that wait for workers do not."""
    boot = 'FFI::cdef("void *signal(int, void *);")->signal(17, FFI::cast("void *", 1));'
    handler = "$p = proc_open(['sh', '-c', 'exit 5'], [], $pipes); usleep(20000); echo proc_close($p); if (isset($_GET['die'])) posix_kill(getmypid(), 9);"
    modes.write(directory, boot + f" while (hayate_handle_request(function () {{ {handler} }})) {{ }}")
    with modes.hayate(directory, rewind, "shared", workers=2) as server:
        for _ in range(3):
            assert set(modes.many(server, 6)) == {"-1"}
            requests.get(server.url + "/?die=1", timeout=60)
        assert set(modes.many(server, 6)) == {"-1"}


CONNECT = "new PDO('mysql:host=127.0.0.1;port=%d', 'a', 'b', [PDO::ATTR_TIMEOUT => 3600, PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);"
CAUGHT = "try {" + CONNECT + "} catch (PDOException) { }"


@pytest.mark.parametrize(
    ("accepts", "step", "said"),
    [
        (True, CONNECT, "threw PDOException"),
        (False, CONNECT, "threw PDOException"),
        (True, CAUGHT, "waited ten seconds for a server that said nothing"),
    ],
    ids=["silent", "full", "caught"],
)
def test_a_server_that_says_nothing_is_waited_for_ten_seconds(directory, accepts, step, said) -> None:
    """Pages that need no database got 503 for as long as it was so."""
    with socket.socket() as silent, socket.socket() as first:
        silent.bind(("127.0.0.1", 0))
        silent.listen(100 if accepts else 0)
        if not accepts:  # no more are taken, and the kernel answers nobody
            first.connect(silent.getsockname())
        modes.write(directory, worker(step % silent.getsockname()[1], "echo 'true';"))
        with modes.hayate(directory, "on", "shared", args=(*WARM, "--boot-timeout", "40s")) as server:
            assert set(modes.many(server, 20)) == {"true"}
            assert server.logged(f"What hayate_on_worker_start() was given {said}")
            assert modes.application(server)["boot_error"] is None, modes.application(server)


def test_it_may_take_its_time(directory) -> None:
    """Nobody is waited for, so nothing is cut."""
    assert answers(directory, worker("$GLOBALS['left'] = sleep(11);", "echo json_encode($GLOBALS['left']);")) == {"0"}


FORKS = r"""
$libc = FFI::cdef('int fork(void);');
$GLOBALS['state'] = str_repeat(posix_getpid() . ' ', 1000);
$child = $libc->fork();
if ($child > 0) {
    usleep(200000);
    $GLOBALS['who'] = 'parent';
} else {
    $GLOBALS['who'] = 'child';
}
"""


ENDS = {
    "returns": "return;",
    "throws": "if ($child === 0) throw new Exception('of the child');",
    "fatal": "if ($child === 0) trigger_error('its own', E_USER_ERROR);",
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_child_of_it_is_no_worker(directory, end) -> None:
    """It protected its parent's pages, whose changes were lost with the first request."""
    handler = "echo json_encode([$GLOBALS['who'], $GLOBALS['state'] === str_repeat(posix_getpid() . ' ', 1000)]); $GLOBALS['state'] = $GLOBALS['who'] = 'x';"
    modes.write(directory, worker(FORKS + end, handler))
    with modes.hayate(directory, "on", "shared", workers=4, args=WARM) as server:
        assert set(modes.many(server, 40)) == {'["parent",true]'}
        assert "of the child" not in (log := server.log()) and "a fatal error ended" not in log


def test_its_timers_end_with_it(directory) -> None:
    step = """
    $libc = FFI::cdef('struct itimerval { long every[2]; long first[2]; }; int setitimer(int, const struct itimerval *, void *);');
    $value = $libc->new('struct itimerval');
    $value->first[1] = 200000;
    $libc->setitimer(0, FFI::addr($value), null);
    $libc->setitimer(1, FFI::addr($value), null);
    """
    handler = "for ($end = hrtime(true) + 1_000_000_000; hrtime(true) < $end;); echo 'alive';"
    assert answers(directory, worker(step, handler)) == {"alive"}


@pytest.mark.parametrize("rewind", ["on", "off"])
@pytest.mark.parametrize("of_answer", ["ob_start(%s); echo 1;", "header_register_callback(%s); echo 1;"], ids=["buffer", "headers"])
def test_memory_that_runs_out_as_the_boot_ends_fails_the_boot(directory, of_answer, rewind) -> None:
    modes.write(
        directory,
        (of_answer % "function () { str_repeat('x', 300 << 20); return ''; }")
        + " while (hayate_handle_request(fn () => print('hi'))) { }",
    )
    # From 8.5 on the message about memory is itself to be shown by that output buffer, which is another error.
    why = "did not boot.*(Allowed memory size of|Cannot use output buffering in output buffering display handlers)"
    with pytest.raises(ServerError, match=why), modes.hayate(directory, rewind, "shared"):
        pass


#: Code that runs after the boot, or a worker's step, and before there is a request: nobody catches what it throws.
OUTSIDE = {
    "destructor throws": "new Garbage(function () { throw new Exception('of nobody'); });",
    "destructor exits": "new Garbage(function () { exit(1); });",
    "a handler throws": "set_error_handler(function ($n, $text) { throw new ErrorException($text); }); new Garbage(function () { trigger_error('of nobody'); });",
    "generator": "$f = (function () { try { yield $g = yield; } finally { throw new Exception('of nobody'); } })(); $f->current(); $f->send($f); unset($f);",
    "buffer": "ob_start(function () { throw new Exception('of nobody'); }); echo 1;",
    "headers": "header_register_callback(function () { throw new Exception('of nobody'); }); echo 1;",
}
GARBAGE = """
class Garbage {
    public $self;
    function __construct(public Closure $end) { $this->self = $this; }
    function __destruct() { ($this->end)(); }
}
"""


@pytest.mark.parametrize("rewind", ["on", "fork", "off"])
@pytest.mark.parametrize("what", OUTSIDE)
def test_what_is_thrown_before_there_are_requests_ends_none(directory, what, rewind) -> None:
    """Each began with it: no handler ran, and nothing was said."""
    modes.write(directory, worker("", "echo 'hi';", GARBAGE + OUTSIDE[what]))
    with modes.hayate(directory, rewind, "shared", args=WARM) as server:
        assert set(modes.many(server, 20)) == {"hi"}
        assert what == "destructor exits" or server.logged("of nobody")


@pytest.mark.parametrize("what", [what for what in OUTSIDE if what not in ("buffer", "headers")])
def test_what_is_thrown_after_a_step_ends_no_request(directory, what) -> None:
    modes.write(directory, worker(OUTSIDE[what], "echo 'hi';", GARBAGE))
    with modes.hayate(directory, "on", "shared", args=WARM) as server:
        assert set(modes.many(server, 20)) == {"hi"}
        assert what == "destructor exits" or server.logged("of nobody")


@pytest.mark.parametrize("where", ["boot", "step"])
@pytest.mark.parametrize("rewind", ["on", "fork", "off"])
def test_opcache_that_is_reset_before_there_are_requests_is_no_reason_to_boot_anew(directory, where, rewind) -> None:
    """It was, and the next boot reset it as well: no request was ever answered."""
    reset = "opcache_reset();"
    script = worker(reset if where == "step" else "", "echo 'hi';", reset if where == "boot" else "")
    assert answers(directory, script, 20, rewind) == {"hi"}


def test_an_application_that_resets_opcache_in_a_request_boots_anew(directory) -> None:
    modes.write(directory, "$at = hrtime(true); while (hayate_handle_request(function () use ($at) { echo $at; if (isset($_GET['reset'])) opcache_reset(); })) { }")
    with modes.hayate(directory, "on", "shared", args=WARM) as server:
        before = modes.get(server)
        assert re.fullmatch(r"\d+", before) and modes.get(server) == before
        requests.get(server.url + "/?reset=1", timeout=60)
        assert wait_until(lambda: modes.get(server) != before)


def test_one_reset_is_one_new_boot(directory) -> None:
    """Whoever saw that OPcache was to restart took it for full, and left as well: so did what took its place."""
    modes.write(directory, "$boot = hrtime(true); while (hayate_handle_request(function () use ($boot) { echo $boot; if (isset($_GET['reset'])) opcache_reset(); })) { }")
    with modes.hayate(directory, "on", "shared", workers=4) as server:
        (before,) = set(modes.many(server, 40))
        time.sleep(6)  # no sooner does anybody look whether it is full
        requests.get(server.url + "/?reset=1", timeout=60)
        assert wait_until(lambda: modes.get(server) != before)
        assert len(set(modes.many(server, 40))) == 1
        assert "OPcache is full" not in server.log()


SERVES = "echo isset($GLOBALS['half']) ? 'half' : 'whole';"


@pytest.mark.parametrize("boot", ["shared", "private"])
@pytest.mark.parametrize(
    ("end", "said"),
    [("throw new Exception('no');", "threw Exception: no"), ("exit(3);", "called exit()")],
    ids=["throws", "exits"],
)
def test_what_is_half_done_is_no_requests(directory, boot, end, said) -> None:
    """Each found what the step had made by then."""
    modes.write(directory, worker("$GLOBALS['half'] = 1;" + end, SERVES))
    with modes.hayate(directory, "on", boot, workers=2, args=WARM) as server:
        assert set(modes.many(server, 40)) == {"whole"}
        assert server.logged(f"was given {said}") and set(modes.application(server)["restarts"]) == {"connection_lost"}


def test_a_step_that_returns_what_it_has_caught_keeps_the_rest(directory) -> None:
    modes.write(directory, worker("$GLOBALS['half'] = 1; return new Exception('one of two');", SERVES))
    with modes.hayate(directory, "on", "shared", workers=2, args=WARM) as server:
        assert set(modes.many(server, 20)) == {"half"}
        assert server.logged("was given returned Exception: one of two. Workers serve without what is missing")
        assert modes.application(server)["restarts"] == {}


def test_nobody_waits_again_for_what_a_step_has_waited_for_in_vain(directory) -> None:
    """Each worker that took the place of another waited ten seconds for a database that said nothing, and all of them at one time."""
    slow = "$GLOBALS['half'] = 1; usleep(1_200_000); return new Exception('silence');"
    modes.write(directory, worker(slow, SERVES + " if (isset($_GET['die'])) posix_kill(getmypid(), 9);"))
    with modes.hayate(directory, "on", "shared", workers=2, args=WARM) as server:
        assert set(modes.many(server, 20)) == {"half"}
        for _ in range(2):
            requests.get(server.url + "/?die=1", timeout=60)
        assert "whole" in modes.many(server, 20)
        assert modes.application(server)["restarts"] == {"signal_9": 2}


def test_a_fatal_error_of_a_step_that_has_gone_well_costs_no_page(directory) -> None:
    """As of a client that reports a lost database by E_USER_ERROR: the site was away for as long as the database."""
    step = f"if (file_exists('{directory}/away')) {{ trigger_error('no database', E_USER_ERROR); }} $GLOBALS['half'] = 1;"
    modes.write(directory, worker(step, SERVES + " if (isset($_GET['die'])) posix_kill(getmypid(), 9);"))
    with modes.hayate(directory, "on", "shared", workers=1, args=WARM) as server:
        assert modes.get(server) == "half"
        (directory / "away").touch()
        requests.get(server.url + "/?die=1", timeout=60)
        assert set(modes.many(server, 20)) == {"whole"}
        assert server.logged("was given was ended by a fatal error")
