"""What the boot has open for writing, and somebody has renamed, removed, replaced or cut since: each request finds what a boot of its own would have
opened by that name, as under php-fpm. A boot that has done more with such a file is not rewound, and the log says so."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
import signal
import stat
import threading
from collections.abc import Callable

import pytest
import requests

from lib.process import open_files, wait_until
from lib.servers import Hayate, NginxFpm

from . import modes

PRIVATE = [mode for mode in modes.MODES if mode[1] == "private"]
SHARED = [mode for mode in modes.MODES if mode[1] == "shared"]

#: An answer is asked for with such a query, or somebody outside does something to the directory.
Step = str | Callable[[pathlib.Path], object]


@dataclasses.dataclass(frozen=True)
class Case:
    """`boot` and `request` are PHP code; `$d` is the directory, `$v` the visitor, `$f` what the boot has opened."""

    boot: str
    request: str
    steps: list[Step]
    modes: list[tuple[str, str]] = dataclasses.field(default_factory=lambda: modes.MODES)
    workers: int = 1
    warmup: str = "off"
    given: dict[str, str] = dataclasses.field(default_factory=dict)
    #: What the boot has done with the file, for which it is not rewound.
    declined: str = ""


def to(name: str) -> Callable[[pathlib.Path], object]:
    """Somebody moves the file `out` away."""
    return lambda d: (d / "out").rename(d / name)


def rotate(d: pathlib.Path) -> None:
    """As logrotate does with `create`."""
    (d / "out").rename(d / "out.1")
    give(d, "out", "")


def give(d: pathlib.Path, name: str, text: str) -> None:
    """A file that everybody may write."""
    (d / name).write_text(text)
    (d / name).chmod(0o666)


def cut(d: pathlib.Path) -> None:
    """As logrotate does with `copytruncate`."""
    os.truncate(d / "out", 0)


def remove(d: pathlib.Path) -> None:
    """Somebody removes it."""
    (d / "out").unlink()


MAY_WRITE = 'if ($v !== "") { fwrite($f, "$v\\n"); fflush($f); } echo 1;'
APPENDS = 'fwrite($f, "$v\\n"); fflush($f); echo 1;'
SHOWS = APPENDS + ' echo file_get_contents("$d/out");'
READS = "rewind($f); echo stream_get_contents($f); fseek($f, 0, SEEK_END); fwrite($f, $v); fflush($f);"
#: Two boots at one time could both have removed the file before either has opened it.
ALONE = "$l = fopen(\"$d/alone\", 'c'); flock($l, LOCK_EX); %s flock($l, LOCK_UN); fclose($l);"
LINES = {"out": "one\ntwo\nthree\n"}
TMPFILE = "$f = tmpfile(); $uri = stream_get_meta_data($f)['uri']; fwrite($f, 'boot');"
VISITORS: list[Step] = ["v=Ada", "v=Grace", "v=Joan"]

CASES = {
    # 2
    "a tmpfile that requests rename": Case(TMPFILE, "fwrite($f, $v); fflush($f); echo json_encode(rename($uri, \"$d/of-$v\"));", VISITORS),
    "a tmpfile that requests link": Case(TMPFILE, "fwrite($f, $v); fflush($f); echo json_encode(link($uri, \"$d/of-$v\"));", VISITORS),
    "a tmpfile that one request links": Case(
        TMPFILE, "if ($v === 'Ada') { fwrite($f, $v); fflush($f); link($uri, \"$d/of-$v\"); } echo file_get_contents($uri);", VISITORS
    ),
    "a tmpfile that requests close": Case(TMPFILE, "echo file_get_contents($uri); fclose($f); echo json_encode(file_exists($uri));", VISITORS),
    "a tmpfile that requests remove": Case(TMPFILE, "fwrite($f, $v); echo file_get_contents($uri), json_encode(unlink($uri));", VISITORS),
    "a tmpfile that became a link to what requests made of it": Case(
        TMPFILE, "fwrite($f, $v); fflush($f); rename($uri, \"$d/of-$v\"); echo json_encode(symlink(\"$d/of-$v\", $uri));", VISITORS, PRIVATE
    ),
    "a tmpfile that a request gives to others": Case(TMPFILE, "echo decoct(fileperms($uri)); chmod($uri, $v === 'Ada' ? 0644 : 0400);", VISITORS, PRIVATE),
    # what is not rewound
    **{
        f"opened with {mode}": Case(f"$f = fopen(\"$d/out\", '{mode}');", READS, VISITORS, PRIVATE, given=LINES, declined="other than to append")
        for mode in ("w+", "c+", "r+")
    },
    "made with x+": Case("@unlink(\"$d/out\"); $f = fopen(\"$d/out\", 'x+');", READS, VISITORS, PRIVATE, declined="other than to append"),
    "a filter": Case("$f = fopen(\"php://filter/write=string.toupper/resource=$d/out\", 'w');", APPENDS, VISITORS, PRIVATE, declined="other than to append"),
    "a log that was read": Case("$f = fopen(\"$d/out\", 'a+'); while (fgets($f) !== false) {}", READS, VISITORS, SHARED, given=LINES, declined="to read as well, and it was read from"),
    "a log that was read in part": Case(
        "$f = fopen(\"$d/out\", 'a+'); fgets($f);",
        'echo fgets($f), ftell($f), stream_get_contents($f); fwrite($f, "$v\\n"); fflush($f);',
        VISITORS,
        given=LINES,
        declined="to read as well, and it was read from",
    ),
    "a queue that requests empty": Case(
        "$f = fopen(\"$d/out\", 'a+'); fgets($f);",
        'while (($l = fgets($f)) !== false) { echo $l; } ftruncate($f, 0); fwrite($f, "head\\n"); fflush($f);',
        VISITORS,
        SHARED,
        given=LINES,
        declined="to read as well, and it was read from",
    ),
    "removed and made anew": Case("@unlink(\"$d/out\"); $f = fopen(\"$d/out\", 'a');", SHOWS, VISITORS, given=LINES, declined="and emptied or replaced it"),
    "removed where none was": Case("@unlink(\"$d/out\"); $f = fopen(\"$d/out\", 'a');", SHOWS, VISITORS, SHARED, declined="and emptied or replaced it"),
    "moved away and made anew": Case("@rename(\"$d/out\", \"$d/out.1\"); $f = fopen(\"$d/out\", 'a');", SHOWS, VISITORS, given=LINES, declined="and emptied or replaced it"),
    "replaced by another": Case(
        "file_put_contents(\"$d/new\", 'head '); rename(\"$d/new\", \"$d/out\"); $f = fopen(\"$d/out\", 'a');", SHOWS, VISITORS, SHARED, declined="and emptied or replaced it"
    ),
    "emptied and opened to append": Case("file_put_contents(\"$d/out\", ''); $f = fopen(\"$d/out\", 'a+');", READS, VISITORS, given=LINES, declined="and emptied or replaced it"),
    "emptied while it is open": Case("$f = fopen(\"$d/out\", 'a'); file_put_contents(\"$d/out\", '');", APPENDS, VISITORS, SHARED, given=LINES, declined="and emptied or replaced it"),
    "cut while it is open": Case("$f = fopen(\"$d/out\", 'a'); flock($f, LOCK_EX); ftruncate($f, 4);", APPENDS, VISITORS, SHARED, given=LINES, declined="and emptied or replaced it"),
    "a log that the boot renames": Case(
        "$f = fopen(\"$d/new\", 'a'); rename(\"$d/new\", \"$d/out\");", APPENDS, VISITORS, SHARED, declined="and gave it another name"
    ),
    "a log through a filter": Case(
        "$f = fopen(\"$d/out\", 'a'); stream_filter_append($f, 'string.toupper', STREAM_FILTER_WRITE); fwrite($f, 'boot '); fflush($f);",
        APPENDS,
        VISITORS,
        SHARED,
        declined="and wrote to it through a filter",
    ),
    "gz, flushed": Case(
        "$f = gzopen(\"$d/out\", 'a'); gzwrite($f, 'boot '); fflush($f);",
        "gzwrite($f, $v); gzclose($f); echo 1;",
        VISITORS,
        SHARED,
        declined="and wrote to it by another descriptor",
    ),
    # what a boot does now and then: the next one has nothing to do
    "rotated by its size": Case(
        "if (@filesize(\"$d/out\") > 10) { rename(\"$d/out\", \"$d/out.1\"); } $f = fopen(\"$d/out\", 'a');", APPENDS, VISITORS, given=LINES
    ),
    "emptied by its size": Case("if (@filesize(\"$d/out\") > 10) { file_put_contents(\"$d/out\", ''); } $f = fopen(\"$d/out\", 'a');", APPENDS, VISITORS, given=LINES),
    # what only looks alike
    "a log that cannot be moved": Case("@rename(\"$d/out\", \"$d/nowhere/out\"); $f = fopen(\"$d/out\", 'a');", APPENDS, VISITORS, given=LINES),
    "a log that is moved where nothing can be": Case("@rename(\"$d/out\", \"$d/temporary\"); $f = fopen(\"$d/out\", 'a');", APPENDS, VISITORS, given=LINES),
    "a log that was read, from its beginning": Case("$f = fopen(\"$d/out\", 'a+'); $head = fgets($f); rewind($f);", READS, VISITORS, given=LINES),
    "removed and opened to append": Case("@unlink(\"$d/old\"); $f = fopen(\"$d/out\", 'a');", APPENDS, VISITORS, given=LINES),
    "a log and others that the boot renames": Case(
        "$f = fopen(\"$d/out\", 'a'); for ($i = 0; $i < 3; $i++) { $n = \"$d/new\" . getmypid(); touch($n); rename($n, \"$d/other\"); }", APPENDS, VISITORS, SHARED
    ),
    "a log to which the boot writes": Case("$f = fopen(\"$d/out\", 'a');", APPENDS, VISITORS, given=LINES),
    "a log behind a filter": Case("$f = fopen(\"php://filter/write=string.toupper/resource=$d/out\", 'a');", APPENDS, ["v=Ada", rotate, "v=Grace"], given=LINES),
    # 6
    "a tmpfile for others": Case(TMPFILE + " chmod($uri, 0644);", READS, VISITORS),
    "a tmpfile with two names": Case(TMPFILE + " @unlink(\"$d/out\"); link($uri, \"$d/out\");", READS, VISITORS),
    "a tmpfile that was moved": Case(TMPFILE + " rename($uri, \"$d/out\");", READS, VISITORS, declined="other than to append"),
    # 9
    **{f"cut in place, {mode}": Case(f"$f = fopen(\"$d/out\", '{mode}');", APPENDS, ["v=Ada", cut, "v=Grace", "v=Joan", rotate, "v=Ada"]) for mode in ("a", "a+")},
    "cut by a request": Case("$f = fopen(\"$d/out\", 'a');", APPENDS + "if ($v === 'Ada') { ftruncate($f, 0); }", VISITORS, given=LINES),
    "removed by others": Case("$f = fopen(\"$d/out\", 'a');", MAY_WRITE, ["v=", remove, "v=Grace", remove, "v=Joan"]),
    # 14, 15
    "gz, a": Case(
        "$f = gzopen(\"$d/out\", 'a');",
        "gzwrite($f, $v); gzclose($f); foreach (['out', 'out.1'] as $n) { echo ' ', $n, ':', implode((array) @gzfile(\"$d/$n\")); }",
        ["v=Ada", rotate, "v=Grace", "v=Joan"],
    ),
    # 19
    "rights that the boot gave": Case(
        "umask(022); $f = fopen(\"$d/out\", 'a'); chmod(\"$d/out\", 0664);", APPENDS + "echo decoct(fileperms(\"$d/out\"));", ["v=Ada", to("out.1"), "v=Grace"], given={}
    ),
    # 20
    "forty of them": Case(
        "for ($i = 0; $i < 40; $i++) { $f = $all[] = tmpfile(); fwrite($f, $i); }",
        "foreach ($all as $one) { rewind($one); echo stream_get_contents($one); fwrite($one, $v); }",
        VISITORS * 3,
        PRIVATE,
    ),
    # what the boot opened by a name that another link has by now
    "a link that changes": Case(
        "$f = fopen(\"$d/out\", 'a');", APPENDS, ["v=Ada", lambda d: ((d / "out").unlink(), (d / "out").symlink_to(d / "tuesday")), "v=Grace"]
    ),
}

WORKER = """
$d = __DIR__;
%s
while (hayate_handle_request(function () {
    foreach ($GLOBALS as $name => &$value) {
        if (in_array($name, ['d', 'f', 'uri', 'all'], true)) {
            $$name = $value;
        }
    }
    $v = $_GET['v'] ?? '';
    %s
})) {
}
"""


def prepare(directory: pathlib.Path, boot: str, request: str, given: dict[str, str]) -> None:
    """The worker script, and nothing else but the files that are given."""
    for one in directory.iterdir():
        if one.is_dir() and not one.is_symlink():
            shutil.rmtree(one)
        else:
            one.unlink()
    directory.chmod(0o777)
    (directory / "temporary").mkdir()
    (directory / "temporary").chmod(0o1777)
    modes.write(directory, WORKER % (boot, request))
    # In classic mode it is the same script, whose loop runs once.
    (directory / "index.php").write_text(f"<?php function once($handler) {{ $handler(); return false; }} {WORKER % (boot, request)}".replace("hayate_handle_request", "once"))
    for name, text in given.items():
        give(directory, name, text)


def php_fpm(directory: pathlib.Path) -> NginxFpm:
    """php-fpm, with a directory for temporary files there."""
    ini = {**modes.INI, **modes.ONCE, "sys_temp_dir": str(directory / "temporary")}
    return NginxFpm(directory, index="worker.php", ini=ini, workers=1)


def hayate(directory: pathlib.Path, rewind: str, boot: str, *, workers: int = 1, warmup: str = "off", args: tuple = (), user: str | None = None) -> Hayate:
    """The same of Hayate; two workers are two."""
    place = ("--env", f"TMPDIR={directory / 'temporary'}")
    return modes.hayate(directory, rewind, boot, workers=workers, warmup=warmup, args=(*place, *args), user=user)


def files(directory: pathlib.Path) -> dict[str, bytes]:
    """What is in the files, but for those that are compressed, which bear a time."""
    found = {one.name: one.read_bytes() for one in sorted(directory.iterdir()) if one.is_file() and one.suffix != ".php"}
    return {name: content for name, content in found.items() if not content.startswith((b"\x1f\x8b", b"BZ"))}


def play(server: Hayate | NginxFpm, directory: pathlib.Path, steps: list[Step]) -> list[str]:
    """The answers."""
    answers = []
    for step in steps:
        if isinstance(step, str):
            answers.append(modes.get(server, step))
        else:
            step(directory)
    return answers


def nobody_was_replaced(server: Hayate) -> None:
    """Neither a worker nor the way in which the application runs."""
    application = modes.application(server)
    assert application["fallback"] is None and application["restarts"] == {}, (application, server.log()[-3000:])


def is_as_under_php_fpm(case: Case, rewind: str, boot: str, directory: pathlib.Path) -> None:
    """Answers and files, and no worker is replaced; or the application is not rewound."""
    prepare(directory, case.boot, case.request, case.given)
    with php_fpm(directory) as fpm:
        expected = play(fpm, directory, case.steps)
    left = files(directory)
    prepare(directory, case.boot, case.request, case.given)
    with hayate(directory, rewind, boot, workers=case.workers, warmup=case.warmup) as server:
        assert play(server, directory, case.steps) == expected, server.log()[-3000:]
        if case.declined:
            # What the boot wrote that was given up is there as well.
            application = modes.application(server)
            assert application["mode"] == "classic" and f"open for writing, {case.declined}" in application["fallback"]["why"], application
            assert server.logged(f"open for writing, {case.declined}")
        else:
            assert files(directory) == left
            nobody_was_replaced(server)


@pytest.mark.parametrize(("name", "rewind", "boot"), [(name, *mode) for name, case in CASES.items() for mode in case.modes])
def test_as_under_php_fpm(name: str, rewind: str, boot: str, directory: pathlib.Path) -> None:
    """Each case in its modes."""
    is_as_under_php_fpm(CASES[name], rewind, boot, directory)


def kill_workers(server: Hayate) -> None:
    """Others take their places."""
    old = {worker["pid"] for worker in modes.application(server)["workers"]}
    for pid in old:
        os.kill(pid, signal.SIGKILL)
    assert wait_until(
        lambda: len(new := {worker["pid"] for worker in modes.application(server)["workers"] if worker["state"] == "idle"}) == len(old) and not new & old
    )


# 1
@modes.each_mode
@pytest.mark.parametrize("then", ["keep", "remove before", "remove after"])
def test_a_worker_that_is_made_after_a_rotation(then: str, rewind: str, boot: str, directory: pathlib.Path) -> None:
    """It writes where the name leads, whatever became of the file that the boot opened."""
    prepare(directory, "$f = fopen(\"$d/out\", 'a');", APPENDS, {"out": ""})
    with hayate(directory, rewind, boot) as server:
        modes.get(server, "v=one")
        rotate(directory)
        if then == "remove before":
            (directory / "out.1").unlink()
        kill_workers(server)
        if then == "remove after":
            (directory / "out.1").unlink()
        for line in ("two", "three"):
            modes.get(server, f"v={line}")
        assert (directory / "out").read_text() == "two\nthree\n"
        assert (directory / "out.1").exists() == (then == "keep")
        assert then != "keep" or (directory / "out.1").read_text() == "one\n"


MANY = "for ($i = 0; $i < %d; $i++) { @unlink(\"$d/none-$i\"); } $f = fopen(\"$d/out\", 'a');"


@pytest.mark.parametrize(("many", "declined"), [(60000, False), (66000, True)])
def test_a_boot_that_removes_many_files(many: int, declined: bool, directory: pathlib.Path) -> None:
    """Beyond a number nobody knows which they were: the reason says so."""
    prepare(directory, MANY % many, "echo 1;", {"out": ""})
    with hayate(directory, "on", "shared") as server:
        assert modes.get(server) == "1"
        fallback = modes.application(server)["fallback"]
        assert bool(fallback) == declined
        assert not declined or "so many others that this may be one of them" in fallback["why"]


MEANWHILE = """
$f = fopen("$d/out", '%s');
touch("$d/opened");
for ($i = 0; $i < 1000 && !file_exists("$d/taken"); $i++) { usleep(10000); clearstatcache(); }
$n = "$d/of" . getmypid();
touch($n);
rename($n, "$d/compiled");
"""


# 17
@pytest.mark.parametrize(("rewind", "boot"), PRIVATE)
@pytest.mark.parametrize("mode", ["a"])
def test_a_file_that_somebody_takes_while_the_boot_lasts(mode: str, rewind: str, boot: str, directory: pathlib.Path) -> None:
    """It is theirs; visitors write to the one with the name."""
    prepare(directory, MEANWHILE % mode, APPENDS, {})
    server = hayate(directory, rewind, boot)

    def take() -> None:
        assert wait_until(lambda: (directory / "opened").exists())
        to("out.1")(directory)
        (directory / "taken").touch()

    thread = threading.Thread(target=take)
    thread.start()
    with server:
        thread.join()
        modes.get(server, "v=Ada")
        assert (directory / "out").read_text() == "Ada\n"
        assert (directory / "out.1").read_text() == ""
        nobody_was_replaced(server)


# 7c, 13
@pytest.mark.parametrize(("rewind", "boot"), PRIVATE)
@pytest.mark.parametrize("mode", ["a"])
def test_ten_workers_and_one_file_that_is_taken(mode: str, rewind: str, boot: str, directory: pathlib.Path) -> None:
    """Nobody is replaced for it."""
    prepare(directory, f"$f = fopen(\"$d/out\", '{mode}');", "echo 1; usleep(2000);", {})
    with hayate(directory, rewind, boot, workers=10) as server:
        for n in range(3):
            modes.many(server, 40, at_once=10)
            to(f"out.{n}")(directory)
        modes.many(server, 80, at_once=10)
        assert (directory / "out").read_text() == ""
        nobody_was_replaced(server)


# 8
@modes.each_mode
def test_a_rotated_file_that_is_closed_to_the_user(rewind: str, boot: str, directory: pathlib.Path) -> None:
    """Workers that come later open the one that is there."""
    prepare(directory, "$f = fopen(\"$d/out\", 'a');", APPENDS, {"out": ""})
    with hayate(directory, rewind, boot, user="www-data") as server:
        modes.get(server, "v=one")
        rotate(directory)
        (directory / "out.1").chmod(0o600)
        os.chown(directory / "out.1", 0, 0)
        modes.get(server, "v=two")
        kill_workers(server)
        modes.get(server, "v=three")
        assert [(directory / name).read_text() for name in ("out.1", "out")] == ["one\n", "two\nthree\n"]


# 10: who has the lock may take it away at the end of what it guards, as under php-fpm
@pytest.mark.parametrize(("rewind", "boot"), PRIVATE)
@pytest.mark.parametrize("mode", ["a", "a+"])
def test_a_lock_file_that_is_removed_excludes_all_the_same(mode: str, rewind: str, boot: str, directory: pathlib.Path) -> None:
    """Requests that begin later agree on the file that is there."""
    prepare(directory, f"$f = fopen(\"$d/out\", '{mode}'); flock($f, LOCK_EX);", "$n = (int) file_get_contents(\"$d/count\"); usleep(3000); file_put_contents(\"$d/count\", $n + 1); echo 1;", {"count": "0"})
    with hayate(directory, rewind, boot, workers=3) as server:
        for round_ in range(6):
            modes.many(server, 12, at_once=3)
            assert (directory / "count").read_text() == str(12 * (round_ + 1))
            remove(directory)
        nobody_was_replaced(server)


def test_a_log_that_cannot_be_opened_costs_nobody(directory: pathlib.Path) -> None:
    """Lines go to the rotated file as long as the other one is closed, and then to that; a worker that is made later is no exception."""
    prepare(directory, "$f = fopen(\"$d/out\", 'a');", APPENDS, {"out": ""})
    with hayate(directory, "on", "shared", user="www-data") as server:
        modes.get(server, "v=one")
        rotate(directory)
        (directory / "out").chmod(0o600)
        os.chown(directory / "out", 0, 0)
        for n in range(12):
            modes.get(server, f"v={n}")
        assert server.log().count("is another one by now") == 1
        nobody_was_replaced(server)
        kill_workers(server)
        modes.get(server, "v=12")
        assert (directory / "out.1").read_text().split() == ["one", *(str(n) for n in range(13))]
        (directory / "out").chmod(0o666)
        modes.get(server, "v=two")
        assert (directory / "out").read_text() == "two\n"


@pytest.mark.parametrize(("rewind", "boot"), PRIVATE)
@pytest.mark.parametrize("kind", ["tmpfile", "nameless", "moved away"])
def test_what_a_request_wrote_to_a_temporary_file_ends_with_it(kind: str, rewind: str, boot: str, directory: pathlib.Path) -> None:
    """It does not wait on the disk for the next one."""
    nameless = "$f = fopen(\"$d/of\" . getmypid(), 'w+'); unlink(stream_get_meta_data($f)['uri']); fwrite($f, 'boot');"
    moves = 'if ($v === "first") { rename($uri, "$uri.old"); unlink("$uri.old"); } ' if kind == "moved away" else ""
    prepare(directory, nameless if kind == "nameless" else TMPFILE, moves + "fwrite($f, str_repeat('x', 4 << 20)); echo json_encode(fflush($f)), getmypid();", {})

    def size(of: int) -> int:
        """Of what that process has open below the directory."""
        return max((st.st_size for name, st in open_files(of) if name.startswith(str(directory)) and stat.S_ISREG(st.st_mode)), default=0)

    with hayate(directory, rewind, boot) as server:
        (worker,) = modes.application(server)["workers"]
        for visitor in ("first", "second", "third"):
            assert modes.get(server, f"v={visitor}").startswith("true")
            assert wait_until(lambda: size(worker["pid"]) <= len("boot"))
        nobody_was_replaced(server)


def logs(pid: int, directory: pathlib.Path) -> set[str]:
    """Those that this process has open."""
    return {name for name, _ in open_files(pid) if name.startswith(f"{directory}/out")}


@modes.each_mode
def test_nobody_keeps_a_log_that_was_removed(rewind: str, boot: str, directory: pathlib.Path) -> None:
    """A rotated log is given up by the worker, and by the process that it was forked from when the next one is."""
    prepare(directory, "$f = fopen(\"$d/out\", 'a');", APPENDS, {"out": ""})
    with hayate(directory, rewind, boot) as server:
        modes.get(server, "v=one")
        rotate(directory)
        (directory / "out.1").unlink()
        for line in ("two", "three"):
            modes.get(server, f"v={line}")
        (worker,) = modes.application(server)["workers"]
        assert wait_until(lambda: logs(worker["pid"], directory) == {str(directory / "out")}), logs(worker["pid"], directory)
        kill_workers(server)
        modes.get(server, "v=four")
        (worker,) = modes.application(server)["workers"]
        zygote = int(pathlib.Path(f"/proc/{worker['pid']}/stat").read_text().rpartition(")")[2].split()[1])
        assert logs(zygote, directory) <= {str(directory / "out")}
        assert (directory / "out").read_text() == "two\nthree\nfour\n"
