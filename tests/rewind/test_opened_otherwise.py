"""What the boot did before it opened a file, around it and under a lock: each request finds what a boot of its own would, as under php-fpm."""

from __future__ import annotations

import concurrent.futures
import pathlib

import pytest

from lib.servers import NginxFpm

from . import modes
from .test_opened_again import (
    APPENDS,
    LINES,
    PRIVATE,
    READS,
    VISITORS,
    Case,
    cut,
    hayate,
    is_as_under_php_fpm,
    kill_workers,
    nobody_was_replaced,
    php_fpm,
    prepare,
)

COUNTS = '$n = (int) @file_get_contents("$d/out"); if ($v !== "") { $n++; } file_put_contents("$d/out", (string) $n); echo $n;'
SPOOLS = 'fwrite($f, $v); fflush($f); usleep(30000); echo json_encode(rename("$d/out", "$d/of-$v")), file_get_contents("$d/of-$v");'
#: A directory that is made anew, and put in the place of the one before.
REPLACED = (
    '$n = "$d/new" . uniqid("", true); mkdir($n); $f = fopen("$n/out", "w+");'
    '@rename("$d/now", "$d/old" . uniqid("", true)); rename($n, "$d/now");'
)

CASES = {
    # at the end that was asked for, or not
    "read, and back to the beginning": Case(
        "$f = fopen(\"$d/out\", 'c+'); stream_get_contents($f); rewind($f);", 'fwrite($f, "$v."); fflush($f); echo 1;', ["v=Grace", "v=Ada", "v=Joan"], PRIVATE, given={"out": ""}
    ),
    # done by the boot
    "cut behind a place": Case("$f = fopen(\"$d/out\", 'c+'); ftruncate($f, 5);", READS, VISITORS, PRIVATE, given={"out": "head and more"}, declined="emptied it"),
    "in a directory that the boot renames": Case(REPLACED, READS, VISITORS, PRIVATE, declined="gave it another name"),
    "removed, and many others": Case(
        "@unlink(\"$d/out\"); for ($i = 0; $i < 100; $i++) { @unlink(\"$d/spool-$i\"); } $f = fopen(\"$d/out\", 'c+');",
        READS,
        VISITORS,
        PRIVATE,
        declined="removed the one before",
    ),
    "one of these names in another directory": Case(
        "@mkdir(\"$d/other\"); @unlink(\"$d/other/out\"); file_put_contents(\"$d/other/out\", ''); $f = fopen(\"$d/out\", 'c+');", READS, VISITORS, PRIVATE
    ),
}


@pytest.mark.parametrize(("name", "rewind", "boot"), [(name, *mode) for name, case in CASES.items() for mode in case.modes])
def test_as_under_php_fpm(name: str, rewind: str, boot: str, directory: pathlib.Path) -> None:
    """Each case in its modes."""
    is_as_under_php_fpm(CASES[name], rewind, boot, directory)


@pytest.mark.parametrize(("rewind", "boot"), PRIVATE)
@pytest.mark.parametrize("opened", ["c+", "a", "a+", "r+"])
def test_a_file_that_a_warm_up_request_empties_is_the_visitors_own(opened: str, rewind: str, boot: str, directory: pathlib.Path) -> None:
    """A page that writes a file anew does so for each visitor, whoever else has it open."""
    prepare(directory, f"$f = fopen(\"$d/out\", '{opened}'); flock($f, LOCK_SH);", COUNTS, {"out": "0"})
    with hayate(directory, rewind, boot, workers=2, warmup="/") as server:
        assert [modes.get(server, f"v={n}") for n in range(12)] == [str(n + 1) for n in range(12)]
        nobody_was_replaced(server)


MADE = {
    "by touch": ("touch(\"$d/out\");", "r+"),
    "by touch, if not there": ("if (!file_exists(\"$d/out\")) { touch(\"$d/out\"); }", "c+"),
    "with content": ("if (!file_exists(\"$d/out\")) { file_put_contents(\"$d/out\", '0'); }", "r+"),
    "with a lock": ("if (!file_exists(\"$d/out\")) { file_put_contents(\"$d/out\", '0', LOCK_EX); }", "r+"),
    "with x": ("$x = @fopen(\"$d/out\", 'x'); if ($x) { fclose($x); }", "r+"),
    "with w": ("if (!file_exists(\"$d/out\")) { fclose(fopen(\"$d/out\", 'w')); }", "c+"),
}


@pytest.mark.parametrize(("rewind", "boot"), PRIVATE)
@pytest.mark.parametrize("way", MADE)
def test_a_file_that_one_boot_makes_and_others_find(way: str, rewind: str, boot: str, directory: pathlib.Path) -> None:
    """Whether each boot makes it anew, or only one that finds none, the next boot shows: what visitors wrote is there."""
    make, mode = MADE[way]
    counts = "$n = 1 + (int) stream_get_contents($f); rewind($f); fwrite($f, $n); fflush($f); echo $n;"
    prepare(directory, f"{make} $f = fopen(\"$d/out\", '{mode}');", counts, {})
    with hayate(directory, rewind, boot) as server:
        assert [modes.get(server) for _ in range(20)] == [str(n + 1) for n in range(20)]
        (directory / "out").unlink()
        kill_workers(server)
        assert [modes.get(server) for _ in range(20)] == [str(n + 1) for n in range(20)]
        application = modes.application(server)
        lost = application["restarts"].get("file_replaced", 0)
        assert application["fallback"] is None and lost <= (0 if "touch" in way else 2), application  # noqa: PLR2004


@pytest.mark.parametrize(("rewind", "boot"), PRIVATE)
@pytest.mark.parametrize("spelled", ['"out"', '"file://$d/out"'])
def test_a_link_that_changes_by_a_relative_name_or_a_url(spelled: str, rewind: str, boot: str, directory: pathlib.Path) -> None:
    """PHP resolves it, and asks again when its cache of paths is old; here it is asked each time."""
    prepare(directory, f'@symlink("monday", "$d/out"); chdir($d); $f = fopen({spelled}, "c");', APPENDS, {})
    with hayate(directory, rewind, boot) as server:
        modes.get(server, "v=Ada")
        (directory / "out").unlink()
        (directory / "out").symlink_to("tuesday")
        modes.get(server, "v=Grace")
        assert [(directory / day).read_text() for day in ("monday", "tuesday")] == ["Ada\n", "Grace\n"]
        nobody_was_replaced(server)


LOCKED = """
$l = fopen("$d/lock", 'c'); flock($l, LOCK_EX);
$f = fopen("$d/out", 'w+');
"""


@pytest.mark.parametrize("server", ["fpm", "on", "fork"])
def test_a_file_that_is_opened_under_a_lock_belongs_to_who_has_it(server: str, directory: pathlib.Path) -> None:
    """Who waited finds what a boot finds that has waited."""
    prepare(directory, LOCKED, SPOOLS, {})
    visitors = [f"v{n}" for n in range(24)]
    with php_fpm_of_three(directory) if server == "fpm" else hayate(directory, server, "private", workers=3) as started:
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(lambda v: modes.get(started, f"v={v}"), visitors))
        assert answers == [f"true{v}" for v in visitors], started.log()[-3000:]
        assert {v: (directory / f"of-{v}").read_text() for v in visitors} == {v: v for v in visitors}
        if server != "fpm":
            nobody_was_replaced(started)


def php_fpm_of_three(directory: pathlib.Path) -> NginxFpm:
    """The same with as many workers."""
    return modes.php_fpm(directory, workers=3)


@pytest.mark.parametrize(("rewind", "boot"), PRIVATE)
def test_a_worker_that_starts_waits_for_who_has_the_lock(rewind: str, boot: str, directory: pathlib.Path) -> None:
    """It does not write to the file under his hands: workers are replaced all the time."""
    request = "fwrite($f, $v); fflush($f); usleep(20000); echo file_get_contents(\"$d/out\");"
    prepare(directory, LOCKED, request, {})
    with hayate(directory, rewind, boot, workers=4, args=("--max-requests", "1")) as server:
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(lambda n: modes.get(server, f"v={n}"), range(120)))
        assert answers == [str(n) for n in range(120)]
