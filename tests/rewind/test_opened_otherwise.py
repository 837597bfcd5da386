"""What the boot did before it opened a file, around it and under a lock: each request finds what a boot of its own would, as under php-fpm."""

from __future__ import annotations

import concurrent.futures
import pathlib

import pytest

from . import modes
from .test_opened_again import (
    APPENDS,
    PRIVATE,
    hayate,
    nobody_was_replaced,
    php_fpm,
    prepare,
)

COUNTS = '$n = (int) @file_get_contents("$d/out"); if ($v !== "") { $n++; } file_put_contents("$d/out", (string) $n); echo $n;'
SPOOLS = 'fwrite($f, $v); fflush($f); usleep(30000); echo json_encode(rename("$d/out", "$d/of-$v")), file_get_contents("$d/of-$v");'

@pytest.mark.parametrize(("rewind", "boot"), PRIVATE)
@pytest.mark.parametrize("opened", ["a", "a+"])
def test_a_file_that_a_warm_up_request_empties_is_the_visitors_own(opened: str, rewind: str, boot: str, directory: pathlib.Path) -> None:
    """A page that writes a file anew does so for each visitor, whoever else has it open."""
    prepare(directory, f"$f = fopen(\"$d/out\", '{opened}'); flock($f, LOCK_SH);", COUNTS, {"out": "0"})
    with hayate(directory, rewind, boot, workers=2, warmup="/") as server:
        assert [modes.get(server, f"v={n}") for n in range(12)] == [str(n + 1) for n in range(12)]
        nobody_was_replaced(server)


@pytest.mark.parametrize(("rewind", "boot"), PRIVATE)
@pytest.mark.parametrize("spelled", ['"out"', '"file://$d/out"', '"php://filter/read=string.rot13/resource=$d/out"'])
def test_a_link_that_changes_by_a_relative_name_or_a_url(spelled: str, rewind: str, boot: str, directory: pathlib.Path) -> None:
    """PHP resolves it, and asks again when its cache of paths is old; here it is asked each time."""
    prepare(directory, f'@symlink("monday", "$d/out"); chdir($d); $f = fopen({spelled}, "a");', APPENDS, {})
    with hayate(directory, rewind, boot) as server:
        modes.get(server, "v=Ada")
        (directory / "out").unlink()
        (directory / "out").symlink_to("tuesday")
        modes.get(server, "v=Grace")
        assert [(directory / day).read_text() for day in ("monday", "tuesday")] == ["Ada\n", "Grace\n"]
        nobody_was_replaced(server)


@modes.each_mode
def test_a_log_by_two_names(rewind: str, boot: str, directory: pathlib.Path) -> None:
    """Where one of them leads elsewhere by now, what is written by the other one goes where it went."""
    request = 'fwrite($f, "latest $v\\n"); fflush($f); fwrite($uri, "day $v\\n"); fflush($uri); echo 1;'
    prepare(directory, '@symlink("monday", "$d/latest"); $f = fopen("$d/latest", "a"); $uri = fopen("$d/monday", "a");', request, {})
    with hayate(directory, rewind, boot) as server:
        modes.get(server, "v=Ada")
        (directory / "latest").unlink()
        (directory / "latest").symlink_to("tuesday")
        for visitor in ("Grace", "Joan"):
            modes.get(server, f"v={visitor}")
        assert (directory / "monday").read_text() == "latest Ada\nday Ada\nday Grace\nday Joan\n"
        assert (directory / "tuesday").read_text() == "latest Grace\nlatest Joan\n"
        nobody_was_replaced(server)


LOCKED = """
$l = fopen("$d/lock", 'a'); flock($l, LOCK_EX);
$f = fopen("$d/out", 'a');
"""


@pytest.mark.parametrize("server", ["fpm", "on", "fork"])
def test_a_file_that_is_opened_under_a_lock_belongs_to_who_has_it(server: str, directory: pathlib.Path) -> None:
    """Who waited finds what a boot finds that has waited."""
    prepare(directory, LOCKED, SPOOLS, {})
    visitors = [f"v{n}" for n in range(24)]
    with modes.php_fpm(directory, workers=3) if server == "fpm" else hayate(directory, server, "private", workers=3) as started:
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(lambda v: modes.get(started, f"v={v}"), visitors))
        assert answers == [f"true{v}" for v in visitors], started.log()[-3000:]
        assert {v: (directory / f"of-{v}").read_text() for v in visitors} == {v: v for v in visitors}
        if server != "fpm":
            nobody_was_replaced(started)


CLOSES = {
    "a lock": ("$f = fopen(\"$d/lock\", 'a'); flock($f, LOCK_EX);", "if (is_resource($f)) { flock($f, LOCK_UN); fclose($f); } $GLOBALS['more'] ??= fopen(\"$d/other\", 'a'); echo 1;"),
    "a log": ("$f = fopen(\"$d/out\", 'a');", "if (is_resource($f)) { fwrite($f, 'x'); fclose($f); } $GLOBALS['more'] ??= fopen(\"$d/other\", 'a'); fwrite($GLOBALS['more'], '.'); echo 1;"),
}


@modes.each_mode
@pytest.mark.parametrize("what", CLOSES)
def test_what_a_warm_up_request_closes(what: str, rewind: str, boot: str, directory: pathlib.Path) -> None:
    """Its number is another file's by the next one: that one stays what it is, and the application starts."""
    boot_code, request = CLOSES[what]
    prepare(directory, boot_code, request, {"other": "lines of others\n" * 100, "out": "", "lock": ""})
    with hayate(directory, rewind, boot, workers=2, warmup="/", args=("--warmup", "/", "--warmup", "/")) as server:
        assert [modes.get(server) for _ in range(6)] == ["1"] * 6
        assert (directory / "other").read_text().startswith("lines of others\n" * 100)
        application = modes.application(server)
        lost = {why for why in application["restarts"] if why.startswith("rewind")}
        assert application["fallback"] is None and not lost, (application, server.log()[-2000:])
        assert ("closed a file on which the boot holds a lock" in server.log()) == (what == "a lock"), server.log()
