"""Temporary files of the boot, and what happens to them past their streams: other ways to write, names, locks, full disks, killed workers."""

from __future__ import annotations

import fcntl
import os
import pathlib
import signal
from collections.abc import Iterator

import pytest

from lib import disk
from lib.process import wait_until

from . import modes

each_rewind = pytest.mark.parametrize("rewind", ["on", "fork"])

#: A file of more than 256 KiB, which is not put back: whoever writes to it, by whatever way, costs the worker.
LARGE = """
$f = tmpfile();
$dump = stream_get_meta_data($f)['uri'];
fwrite($f, str_repeat('b', 300000));
$second = fopen($dump, 'a+');
while (hayate_handle_request(function () {
    global $f, $second, $dump;
    echo md5_file($dump);
    $v = 'secret of ' . ($_GET['v'] ?? '');
    %s
})) {
}
"""
WAYS = {
    "appended by its name": "file_put_contents($dump, $v, FILE_APPEND);",
    "emptied by its name": "file_put_contents($dump, $v);",
    "by another descriptor of the boot": "fwrite($second, $v); fflush($second);",
    "copied into it": "fseek($f, 9); stream_copy_to_stream(fopen(__DIR__ . '/source', 'r'), $f);",
    "by a child": "proc_close(proc_open(['echo', $v], [1 => $f], $pipes));",
}


@each_rewind
@pytest.mark.parametrize("way", WAYS)
def test_a_large_file_that_is_written_another_way(way: str, rewind: str, directory: pathlib.Path) -> None:
    """As under php-fpm, whose boot empties it for each visitor."""
    directory.chmod(0o777)
    (directory / "source").write_text("secret" * 1000)
    modes.write(directory, LARGE % WAYS[way])
    visitors = ["v=Ada", "v=Grace", "v=Joan"]
    with modes.php_fpm(directory, workers=1) as fpm:
        expected = [modes.get(fpm, visitor) for visitor in visitors]
    with modes.hayate(directory, rewind, "private", workers=1) as server:
        assert [modes.get(server, visitor) for visitor in visitors] == expected
        assert wait_until(lambda: modes.application(server)["restarts"] == {"rewind_descriptors": 3}), modes.application(server)


@each_rewind
def test_reading_a_large_file_costs_nothing(rewind: str, directory: pathlib.Path) -> None:
    """By its name, by a stream, into another stream."""
    directory.chmod(0o777)
    modes.write(directory, LARGE % "rewind($f); stream_copy_to_stream($f, fopen('php://memory', 'w+')); fpassthru($second);")
    with modes.hayate(directory, rewind, "private", workers=1) as server:
        assert len({modes.get(server) for _ in range(5)}) == 1
        assert modes.application(server)["restarts"] == {}


COMPARED = """
$f = %s;
fwrite($f, "boot\\n");
while (hayate_handle_request(function () {
    global $f;
    if (!isset($_SERVER['HAYATE_WARMUP'])) {
        fwrite($f, $_SERVER['REQUEST_URI'] . "\\n" . (isset($_SERVER['HAYATE_COMPARISON']) ? str_repeat('.', 100) : ''));
    }
    rewind($f);
    echo %s ? 'nothing' : stream_get_contents($f);
})) {
}
"""


@each_rewind
@pytest.mark.parametrize("opened", ["tmpfile()", "fopen('php://temp/maxmemory:1', 'w+')"], ids=["temporary", "spilled"])
@pytest.mark.parametrize("hides", ["false", "isset($_SERVER['HAYATE_COMPARISON'])"], ids=["shown", "hidden"])
def test_requests_of_the_comparison_leave_nothing(hides: str, opened: str, rewind: str, directory: pathlib.Path) -> None:
    """Neither for each other nor for visitors, who find what the boot has left in its file."""
    directory.chmod(0o777)
    modes.write(directory, COMPARED % (opened, hides))
    visitors = [f"v={n}" for n in range(3)]
    with modes.php_fpm(directory, workers=1) as fpm:
        expected = [modes.get(fpm, visitor) for visitor in visitors]
    with modes.hayate(directory, rewind, "private", workers=1, warmup="/") as server:
        assert [modes.get(server, visitor) for visitor in visitors] == expected
        application = modes.application(server)
        assert application["fallback"] is None and application["restarts"] == {}, application
        assert "after the warm-up" not in server.log(), server.log()


LOCKED = """
$libc = FFI::cdef('int open(const char *, int, ...); int close(int); int lockf(int, int, long);');
$number = $libc->open('/dev/null', 0);
$libc->close($number);
$f = fopen(__DIR__ . '/locked', 'a');
$taken = $libc->lockf($number, 2, 10);
while (hayate_handle_request(function () {
    global $taken;
    echo $taken;
})) {
}
"""


def is_free(file: pathlib.Path) -> bool:
    """Nobody has a record lock on it."""
    with file.open("r+") as handle:
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
    return True


def test_a_record_lock_on_a_log(directory: pathlib.Path) -> None:
    """The worker has it from its boot on."""
    directory.chmod(0o777)
    modes.write(directory, LOCKED)
    with modes.hayate(directory, "on", "private", workers=1) as server:
        for _ in range(3):
            assert modes.get(server) == "0"
            assert not is_free(directory / "locked")
        assert modes.application(server)["restarts"] == {}
    assert is_free(directory / "locked")


@pytest.fixture
def small(directory: pathlib.Path) -> Iterator[pathlib.Path]:
    """A file system of half a megabyte."""
    directory.chmod(0o777)
    with disk.small(directory / "small", "512k") as place:
        yield place


FULL = """
$f = tmpfile();
fwrite($f, str_repeat('b', 200000));
while (hayate_handle_request(function () {
    global $f;
    rewind($f);
    $text = stream_get_contents($f);
    echo strlen($text), str_replace('b', '', $text);
    if (isset($_GET['fill'])) {
        ftruncate($f, 0);
        fwrite($f, 'secret');
        @file_put_contents(__DIR__ . '/small/others', str_repeat('x', 1 << 20));
    }
    if (isset($_GET['free'])) {
        unlink(__DIR__ . '/small/others');
    }
})) {
}
"""


@each_rewind
def test_a_full_disk_costs_no_request(rewind: str, small: pathlib.Path, directory: pathlib.Path) -> None:
    """What cannot be written again is cut off, as where the boot itself meets a full disk; nobody reads what was another's."""
    modes.write(directory, FULL)
    with modes.hayate(directory, rewind, "private", workers=1, args=("--env", f"TMPDIR={small}")) as server:
        assert modes.get(server, "fill=1") == "200000"
        answers = [modes.get(server), modes.get(server, "free=1")]
        assert all(answer.isdigit() and int(answer) < 200000 for answer in answers), answers


def temporary_files(directory: pathlib.Path) -> int:
    """How many are there."""
    return len(list(directory.iterdir()))


@each_rewind
def test_a_killed_worker_leaves_no_temporary_file(rewind: str, directory: pathlib.Path) -> None:
    """The one that takes its place has its own."""
    directory.chmod(0o777)
    place = directory / "temporary"
    place.mkdir()
    place.chmod(0o1777)
    modes.write(directory, "$f = tmpfile(); fwrite($f, 'boot');\nwhile (hayate_handle_request(function () { global $f; echo fread($f, 9); })) {}\n")
    with modes.hayate(directory, rewind, "private", workers=2, args=("--env", f"TMPDIR={place}")) as server:
        modes.get(server)
        assert wait_until(lambda: temporary_files(place) == 2)
        for _ in range(3):
            # One that boots has made its file, and nobody may know of it yet.
            assert wait_until(lambda: all(worker["state"] == "idle" for worker in modes.application(server)["workers"]))
            (pid, *_) = pids = {worker["pid"] for worker in modes.application(server)["workers"]}
            os.kill(pid, signal.SIGKILL)
            assert wait_until(
                lambda pids=pids, pid=pid: pid not in (now := {worker["pid"] for worker in modes.application(server)["workers"]}) and len(now) == len(pids)
            )
            assert wait_until(lambda: temporary_files(place) == 2), list(place.iterdir())
    assert wait_until(lambda: temporary_files(place) == 0)
