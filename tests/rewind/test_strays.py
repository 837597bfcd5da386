"""A process that PHP code forks by itself, without running another program: it runs its own code and ends, and does
nothing in the worker's name. Children that run another program are what they are under php-fpm."""

from __future__ import annotations

import os
import pathlib
import signal
import time

import pytest
import requests

from lib.process import wait_until
from lib.servers import Hayate

from . import modes

SCRIPT = r"""
$libc = FFI::cdef('
    int fork(); int vfork(); void _exit(int); int waitpid(int, int *, int); int usleep(unsigned); int setsid();
    long syscall(long, ...); void exit(int); int getpid();
');
$visits = 0;
register_shutdown_function(static function () {
    file_put_contents(__DIR__.'/ends', getmypid().' shutdown of '.($_GET['do'] ?? '')."\n", FILE_APPEND);
});
final class Ends
{
    public function __destruct()
    {
        file_put_contents(__DIR__.'/ends', getmypid().' destructor of '.($_GET['do'] ?? '')."\n", FILE_APPEND);
    }
}
$note = static function (string $what) use ($libc) {
    file_put_contents(__DIR__.'/notes', $libc->getpid()." $what\n", FILE_APPEND);
};
$linger = static function (int $ms) use ($libc, $note, &$visits) {
    unset($GLOBALS['files']);
    $note('stray');
    for ($i = 0; $i < $ms; $i++) {
        $visits++;
        $GLOBALS['garbage'][] = str_repeat('x', 5000);
        $libc->usleep(1000);
    }
    $note('over');
};
while (hayate_handle_request(function () use ($libc, $linger, $note, &$visits) {
    $GLOBALS['ends'] = new Ends();
    $visits++;
    echo "visit $visits of ", $_GET['name'] ?? 'nobody', "\n";
    switch ($_GET['do'] ?? '') {
        case 'returns': // ... into hayate_handle_request(), and would serve
            if ($libc->fork() === 0) {
                echo 'from the stray';
                header('X-Stray: 1');
                flush();
                $linger(300);
                return;
            }
            break;
        case 'exits':
            if ($libc->fork() === 0) {
                echo str_repeat('from the stray', 100000);
                $linger(100);
                exit('from the stray');
            }
            break;
        case 'fails':
            if ($libc->fork() === 0) {
                $linger(50);
                undefined_function();
            }
            break;
        case 'throws':
            if ($libc->fork() === 0) {
                throw new Exception('from the stray');
            }
            break;
        case 'finishes':
            if ($libc->fork() === 0) {
                fastcgi_finish_request();
                hayate_handle_request(static fn () => $note('served'));
                $note('went on');
            }
            break;
        case 'without libc': // fork(), with no library to notice
            if ($libc->syscall(57) === 0) {
                $linger(100);
                return;
            }
            break;
        case 'waited for':
            if (($child = $libc->fork()) === 0) {
                $note('stray');
                $libc->_exit(0);
            }
            $libc->waitpid($child, null, 0);
            break;
        case 'daemon': // out of sight: its parent ends first; no descriptor is left where it is forked
            while (isset($_GET['full']) && ($file = @fopen('/dev/null', 'r')) !== false) {
                $GLOBALS['files'][] = $file;
            }
            unset($file);
            if (($child = $libc->fork()) === 0) {
                $libc->setsid();
                if ($libc->fork() !== 0) {
                    $libc->_exit(0);
                }
                $linger((int) ($_GET['ms'] ?? 300));
                return;
            }
            $libc->waitpid($child, null, 0);
            unset($GLOBALS['files']);
            break;
        case 'programs':
            echo shell_exec('echo shell'), exec('echo exec'), "\n", system('echo system'), "\n";
            $process = proc_open(['echo', 'proc'], [1 => ['pipe', 'w']], $pipes);
            echo stream_get_contents($pipes[1]), proc_close($process), "\n";
            $pipe = popen('echo popen', 'r');
            echo fgets($pipe), pclose($pipe), "\n";
            exec('(sleep 1; echo done > '.escapeshellarg(__DIR__.'/background').') > /dev/null 2>&1 &');
            break;
    }
})) {
}
"""


@pytest.fixture
def site(directory: pathlib.Path) -> pathlib.Path:
    modes.write(directory, SCRIPT)
    return directory


def visits(server: Hayate, count: int) -> None:
    """Each visitor has an answer of her own from a fresh application."""
    for n in range(count):
        answer = requests.get(f"{server.url}/?name=v{n}", timeout=60)
        assert (answer.status_code, answer.text) == (200, f"visit 1 of v{n}\n")
        assert "X-Stray" not in answer.headers


def strays(directory: pathlib.Path) -> list[int]:
    """Process ids of those that said so."""
    notes = directory / "notes"
    lines = notes.read_text().splitlines() if notes.exists() else []
    return [int(line.split()[0]) for line in lines if line.endswith(" stray")]


def is_alive(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("do", ["returns", "exits", "fails", "throws", "finishes", "without libc"])
@modes.each_mode
def test_a_stray_does_nothing_in_the_workers_name(site, rewind, boot, do) -> None:
    with modes.hayate(site, rewind, boot, workers=1, args=("--rewind-verify", "1")) as server:
        for n in range(2):
            answer = requests.get(f"{server.url}/?name=her&do={do}", timeout=60)
            assert (answer.status_code, answer.text) == (200, "visit 1 of her\n")
            visits(server, 40)
        assert wait_until(lambda: not any(is_alive(pid) for pid in strays(site)))
        visits(server, 3)
        app = modes.application(server)
    notes = (site / "notes").read_text() if (site / "notes").exists() else ""
    assert "served" not in notes and "went on" not in notes
    ends = [line for line in (site / "ends").read_text().splitlines() if line.endswith(f"of {do}")]
    assert len(ends) == 4, "shutdown function and destructor of the two requests, and none of a stray"
    expected = "rewind_process" if do == "without libc" and rewind == "on" else "rewind_child"
    assert set(app["restarts"]) <= {expected} and app["fallback"] is None, app
    assert "memory differs" not in server.log()


@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_a_stray_that_was_waited_for_costs_nothing(site, rewind) -> None:
    with modes.hayate(site, rewind, "shared", workers=1) as server:
        for _ in range(10):
            assert modes.get(server, "name=her&do=waited+for") == "visit 1 of her\n"
        assert modes.application(server)["restarts"] == {}
        assert len(strays(site)) == 10


@pytest.mark.parametrize("more", ["", "&full=1"], ids=["", "without-descriptors"])
def test_a_stray_without_parent_is_found(site, more) -> None:
    """What becomes a daemon is no child of the worker any more, but shares its files."""
    with modes.hayate(site, "on", "shared", workers=1) as server:
        assert modes.get(server, f"name=her&do=daemon{more}") == "visit 1 of her\n"
        visits(server, 20)
        assert modes.application(server)["restarts"] == {"rewind_child": 1}
        (pid,) = strays(site)
        assert wait_until(lambda: not is_alive(pid))
        assert "over" in (site / "notes").read_text(), "it ran its own code to the end"


#: What is forked where no descriptor is left has to be told by one all the same.
ENDS = [(*mode, "") for mode in modes.MODES] + [("on", "shared", "&full=1")]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize(("rewind", "boot", "more"), ENDS, ids=["-".join((*mode[:2], "full" * bool(mode[2]))) for mode in ENDS])
def test_a_stray_ends_with_the_server(site, rewind, boot, how, more) -> None:
    server = modes.hayate(site, rewind, boot, workers=1).start()
    try:
        assert modes.get(server, f"name=her&do=daemon&ms=600000{more}") == "visit 1 of her\n"
        assert wait_until(lambda: len(strays(site)) == 1)
        (pid,) = strays(site)
        visits(server, 3)
        assert is_alive(pid)
        if how == signal.SIGKILL:
            os.kill(server.process.pid, signal.SIGKILL)
    finally:
        server.kill() if how == signal.SIGKILL else server.stop()
    assert wait_until(lambda: not is_alive(pid))


@modes.each_mode
def test_programs_run_as_under_php_fpm(site, rewind, boot) -> None:
    with modes.php_fpm(site) as fpm:
        expected = modes.get(fpm, "name=her&do=programs")
        assert wait_until(lambda: (site / "background").exists())
    assert "shell\nexec\nsystem\nsystem\nproc\n0\npopen\n0\n" in expected
    (site / "background").unlink()
    with modes.hayate(site, rewind, boot, workers=2) as server:
        assert set(modes.many(server, 20, "name=her&do=programs")) == {expected}
        assert wait_until(lambda: (site / "background").exists()), "it may outlive the request"
        assert modes.application(server)["restarts"] == {}
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and not (site / "background").read_text():
            time.sleep(0.1)


BOOT = r"""
$libc = FFI::cdef('int fork(); int usleep(unsigned); int getpid();');
if ($libc->fork() === 0) {
    file_put_contents(__DIR__.'/notes', $libc->getpid()." stray\n", FILE_APPEND);
    $libc->usleep((int) getenv('LINGER') * 1000);
}
while (hayate_handle_request(function () {
    echo 'visit 1 of ', $_GET['name'], "\n";
})) {
}
"""


@pytest.mark.parametrize("linger", [100, 600_000])
@pytest.mark.parametrize("rewind", ["on", "fork", "off"])
def test_a_stray_of_the_boot_is_no_second_server(directory, rewind, linger) -> None:
    modes.write(directory, BOOT)
    with modes.hayate(directory, rewind, "shared", workers=2, args=("--env", f"LINGER={linger}")) as server:
        visits(server, 20)
        assert wait_until(lambda: len(strays(directory)) == 1)
        (pid,) = strays(directory)
        if linger < 1000:
            assert wait_until(lambda: not is_alive(pid))
        visits(server, 20)
        app = modes.application(server)
        assert app["restarts"] == {} and app["zygote_deaths"] == 0 and len(app["workers"]) == 2
    assert wait_until(lambda: not is_alive(pid))
