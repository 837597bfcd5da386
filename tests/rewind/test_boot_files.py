"""Temporary files of the boot, and terminals: what one visitor wrote there is nothing for the next, as under php-fpm."""

from __future__ import annotations

import hashlib
import os
import pathlib
import signal

import pytest

from lib.process import wait_until

from . import modes

#: What the boot opens, and how a request reads all that is in it; `$n`: how much the boot writes.
KINDS = {
    "tmpfile": ("$f = tmpfile(); fwrite($f, str_repeat('b', $n));", "rewind($f); echo md5(stream_get_contents($f));"),
    "php://temp": (
        "$f = fopen('php://temp/maxmemory:64', 'w+'); fwrite($f, str_repeat('b', $n));",
        "rewind($f); echo md5(stream_get_contents($f));",
    ),
    "SplTempFileObject": (
        "$f = new SplTempFileObject(64); $f->fwrite(str_repeat('b', $n));",
        "$f->rewind(); $t = ''; while (!$f->eof()) { $t .= $f->fread(8192); } echo md5($t);",
    ),
    "sqlite": (
        "$f = new PDO('sqlite::memory:'); $f->exec('PRAGMA temp_store = 1; PRAGMA temp.cache_size = 2; CREATE TEMP TABLE t (s TEXT)');"
        "for ($i = 0; $i < $n; $i += 500) { $f->exec(\"INSERT INTO t VALUES ('\" . str_repeat('b', 500) . \"')\"); }"
        "$s = $f->query('SELECT count(*) FROM t'); $s->fetchAll(); $s = null;",
        "echo $f->query('SELECT count(*) FROM t')->fetchColumn(), $f->query('PRAGMA temp.integrity_check')->fetchColumn();",
    ),
}
WRITES = {
    "SplTempFileObject": "$f->rewind(); $f->fwrite($_GET['v']);",
    "sqlite": "$f->exec(\"UPDATE t SET s = '{$_GET['v']}' || s; INSERT INTO t VALUES ('{$_GET['v']}')\");",
}


def write(directory: pathlib.Path, kind: str, size: int) -> None:
    boot, look = KINDS[kind]
    directory.chmod(0o777)
    writes = WRITES.get(kind, "rewind($f); fwrite($f, $_GET['v']);")
    modes.write(directory, f"$n = {size}; {boot}\nwhile (hayate_handle_request(function () {{ global $f; {look} {writes} }})) {{}}\n")


@pytest.mark.parametrize("rewind", ["on", "fork"])
@pytest.mark.parametrize("size", [1000, 700_000])
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_visitor_wrote_is_nothing_for_the_next(kind: str, size: int, rewind: str, directory: pathlib.Path) -> None:
    """Of a small one the contents are put back; a large one costs the worker."""
    write(directory, kind, size)
    values = ["a" * 300, "secret", "", "x" * (size + 5), "end"]
    with modes.php_fpm(directory, workers=1) as fpm:
        expected = [modes.get(fpm, f"v={value[:2000]}") for value in values]
    with modes.hayate(directory, rewind, "private", workers=1, args=("--rewind-verify", "1")) as server:
        assert [modes.get(server, f"v={value[:2000]}") for value in values] == expected
        application = modes.application(server)
        assert application["fallback"] is None, application
        if size == 1000:
            assert application["restarts"] == {}
        else:
            assert set(application["restarts"]) == {"rewind_descriptors"}


def linked(directory: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """A directory for temporary files, and a link that leads to it."""
    real = directory / "real"
    real.mkdir()
    real.chmod(0o1777)
    link = directory / "link"
    link.symlink_to(real)
    return real, link


@pytest.mark.parametrize("rewind", ["on", "fork"])
@pytest.mark.parametrize("size", [1000, 700_000])
def test_a_tmpfile_in_a_directory_by_another_name(size: int, rewind: str, directory: pathlib.Path) -> None:
    """It is a temporary one all the same, and a worker that ends leaves none behind."""
    write(directory, "tmpfile", size)
    real, link = linked(directory)
    with modes.hayate(directory, rewind, "private", workers=1, args=("--env", f"TMPDIR={link}")) as server:
        answers = {modes.get(server, f"v=visitor{n}") for n in range(4)}
        assert len(answers) == 1, answers
        assert wait_until(lambda: len(list(real.iterdir())) == 1), list(real.iterdir())
    assert wait_until(lambda: list(real.iterdir()) == []), list(real.iterdir())


@pytest.mark.parametrize("rewind", ["on", "fork"])
@pytest.mark.parametrize("size", [1000, 700_000])
def test_a_file_without_a_name_that_is_appended_to(size: int, rewind: str, directory: pathlib.Path) -> None:
    """No worker reads what another one's visitor wrote."""
    # A name for each process: boots at the same time would open one file.
    boot = f"$n = __DIR__ . '/nameless' . getmypid(); $f = fopen($n, 'a+'); unlink($n); fwrite($f, str_repeat('b', {size}));"
    request = "rewind($f); echo md5(stream_get_contents($f)); ftruncate($f, 0); fwrite($f, $_GET['v']);"
    directory.chmod(0o777)
    modes.write(directory, f"{boot}\nwhile (hayate_handle_request(function () {{ global $f; {request} }})) {{}}\n")
    with modes.hayate(directory, rewind, "shared", workers=2) as server:
        expected = hashlib.md5(b"b" * size).hexdigest()  # noqa: S324
        assert set(modes.many(server, 6, "v=secret", at_once=2)) == {expected}
        assert modes.application(server)["boot"] == "private"


CLOSED = """
$f = tmpfile();
fwrite($f, 'boot');
while (hayate_handle_request(function () {
    global $f;
    if (isset($_SERVER['HAYATE_WARMUP']) && is_resource($f)) {
        fclose($f);
    }
    $held = array_map(fn ($fd) => (string) @readlink("/proc/self/fd/$fd"), scandir('/proc/self/fd'));
    echo count(array_filter($held, fn ($name) => preg_match('~/php[^/]{6,19}( [(]deleted[)])?$~', $name)));
})) {
}
"""


@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_a_temporary_file_that_a_warm_up_request_closes_is_gone(rewind: str, directory: pathlib.Path) -> None:
    """Nobody holds it: neither PHP nor the server."""
    modes.write(directory, CLOSED)
    with modes.hayate(directory, rewind, "private", workers=1, warmup="/") as server:
        assert modes.get(server) == "0"
        assert modes.application(server)["cold_boot"] is None, modes.application(server)


def test_what_holds_what_it_should_is_not_written(directory: pathlib.Path) -> None:
    """Requests that leave a file of the boot alone do not touch it."""
    directory.chmod(0o777)
    modes.write(directory, "$f = tmpfile(); fwrite($f, 'boot');\nwhile (hayate_handle_request(function () { echo 1; })) {}\n")
    real, _ = linked(directory)
    with modes.hayate(directory, "on", "private", workers=1, args=("--env", f"TMPDIR={real}")) as server:
        assert modes.get(server) == "1"
        (file,) = real.iterdir()
        before = file.stat().st_mtime_ns
        assert modes.many(server, 5) == ["1"] * 5
        assert file.stat().st_mtime_ns == before


LOG = """
$log = fopen('php://stderr', 'w');
while (hayate_handle_request(function () {
    global $log;
    echo json_encode(fwrite($log, "a line of {$_GET['v']}\\n") > 0);
})) {
}
"""


@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_standard_error_is_no_connection(rewind: str, directory: pathlib.Path) -> None:
    """php://stderr of the boot is a second descriptor of what the server itself writes to: a pipe, or a terminal."""
    modes.write(directory, LOG)
    with modes.hayate(directory, rewind, "shared", workers=1) as server:
        assert [modes.get(server, f"v={n}") for n in range(4)] == ["true"] * 4
        application = modes.application(server)
        assert application["restarts"] == {} and application["fallback"] is None and application["boot"] == "shared", application
        assert wait_until(lambda: all(f"a line of {n}" in server.log() for n in range(4)))


TERMINAL = """
$terminal = fopen('/dev/ptmx', 'r+');
stream_set_blocking($terminal, false);
while (hayate_handle_request(function () {
    global $terminal;
    if (isset($_GET['write'])) {
        fwrite($terminal, "secret\\n");
        usleep(200000);
    }
    echo json_encode(isset($_GET['read']) ? (string) fread($terminal, 100) : 'untouched');
})) {
}
"""


@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_a_terminal_of_the_boot_is_not_shared(rewind: str, directory: pathlib.Path) -> None:
    """Each worker has one of its own, which says what is written to it, as each request has under php-fpm; using it costs the worker."""
    modes.write(directory, TERMINAL)
    expected = ['""', '"untouched"', '""']
    with modes.hayate(directory, rewind, "shared", workers=1) as server:
        assert modes.application(server)["boot"] == "private"
        for n in range(2):
            assert modes.get(server) == '"untouched"'
            assert [modes.get(server, query) for query in ("read=1", "write=1", "read=1")] == expected
            assert wait_until(lambda n=n: modes.application(server)["restarts"].get("rewind_connection", 0) >= 3 * n + 2)
