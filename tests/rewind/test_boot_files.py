"""Files that each boot makes anew, and terminals: what one visitor wrote there is nothing for the next, as under php-fpm."""

from __future__ import annotations

import pathlib

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
    "w+": ("$f = fopen(__DIR__ . '/emptied', 'w+'); fwrite($f, str_repeat('b', $n));", "rewind($f); echo md5(stream_get_contents($f));"),
    "w": ("$f = fopen(__DIR__ . '/emptied', 'w'); fwrite($f, str_repeat('b', $n));", "echo md5_file(__DIR__ . '/emptied');"),
    "r+": ("$f = fopen(__DIR__ . '/kept', 'r+'); fread($f, 1);", "rewind($f); echo stream_get_contents($f);"),
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
    (directory / "kept").write_text("aa")
    (directory / "kept").chmod(0o666)
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
    (directory / "kept").write_text("aa")
    with modes.hayate(directory, rewind, "private", workers=1, args=("--rewind-verify", "1")) as server:
        assert [modes.get(server, f"v={value[:2000]}") for value in values] == expected
        application = modes.application(server)
        assert application["fallback"] is None, application
        if size == 1000 or kind == "r+":
            assert application["restarts"] == {}
        else:
            assert set(application["restarts"]) == {"rewind_descriptors"}


TERMINAL = """
$child = proc_open(['cat'], [['pty'], ['pty'], ['pty']], $pipes);
stream_set_blocking($pipes[1], false);
while (hayate_handle_request(function () {
    global $pipes;
    if (isset($_GET['write'])) {
        fwrite($pipes[0], "secret\\n");
        fflush($pipes[0]);
        usleep(200000);
    }
    echo json_encode(isset($_GET['read']) ? (string) fread($pipes[1], 100) : 'untouched');
})) {
}
"""


@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_a_terminal_of_the_boot_is_not_shared(rewind: str, directory: pathlib.Path) -> None:
    """Each worker has a child and a terminal of its own, as each request has under php-fpm; using it costs the worker."""
    modes.write(directory, TERMINAL)
    expected = ['""', '"untouched"', '""']
    with modes.hayate(directory, rewind, "shared", workers=1) as server:
        assert modes.application(server)["boot"] == "private"
        for n in range(2):
            assert modes.get(server) == '"untouched"'
            assert [modes.get(server, query) for query in ("read=1", "write=1", "read=1")] == expected
            assert wait_until(lambda n=n: modes.application(server)["restarts"].get("rewind_connection", 0) >= 3 * n + 2)
