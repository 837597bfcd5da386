"""Files that the boot opened for writing, and that somebody has renamed since: what requests write goes where the name leads, as under php-fpm."""

from __future__ import annotations

import os
import pathlib

import pytest

from lib.servers import Hayate, NginxFpm

from . import modes

WORKER = """
$log = fopen(__DIR__ . '/app.log', '%s');
%s
while (hayate_handle_request(function () {
    global $log;
    echo json_encode(fwrite($log, $_GET['v'] . "\\n") > 0);
    fflush($log);
})) {
}
"""


def play(server: Hayate | NginxFpm, directory: pathlib.Path) -> list[str]:
    """What is in the files in the end."""
    log = directory / "app.log"
    assert modes.get(server, "v=first") == "true"
    for round_ in range(3):
        log.rename(directory / f"app.log.{round_}")
        # Some files have to be there to be opened.
        log.write_text("")
        log.chmod(0o666)
        if round_ == 2:  # noqa: PLR2004
            log.unlink()
        for n in range(3):
            if not log.exists() and round_ < 2:  # noqa: PLR2004
                log.write_text("")
            assert modes.get(server, f"v=line-{round_}-{n}") == "true"
    return [file.read_text() for file in sorted(directory.glob("app.log*"))]


def write(directory: pathlib.Path, mode: str, more: str = "") -> None:
    """The worker script; its file is there."""
    directory.chmod(0o777)
    modes.write(directory, WORKER % (mode, more))
    for file in directory.glob("app.log*"):
        file.unlink()
    (directory / "app.log").write_text("")
    (directory / "app.log").chmod(0o666)


@modes.each_mode
@pytest.mark.parametrize(("mode", "more"), [("a", ""), ("a+", ""), ("ab", "flock($log, LOCK_EX);")])
def test_lines_go_where_the_name_leads(mode: str, more: str, rewind: str, boot: str, directory: pathlib.Path) -> None:
    """Also where it leads nowhere: the file is made anew."""
    write(directory, mode, more)
    with modes.php_fpm(directory, workers=1) as fpm:
        expected = play(fpm, directory)
    write(directory, mode, more)
    with modes.hayate(directory, rewind, boot, workers=1 if more or mode == "c" else 2) as server:
        assert play(server, directory) == expected
        application = modes.application(server)
        assert application["fallback"] is None, application
        assert application["restarts"] == {}, application


@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_a_log_by_a_link_goes_where_the_link_leads(rewind: str, directory: pathlib.Path) -> None:
    """A link to the file of the day changes at midnight."""
    write(directory, "a")
    log = directory / "app.log"
    log.unlink()
    log.symlink_to(directory / "monday")
    with modes.hayate(directory, rewind, "shared", workers=1) as server:
        assert modes.get(server, "v=one") == "true"
        log.unlink()
        log.symlink_to(directory / "tuesday")
        assert modes.get(server, "v=two") == "true"
        assert modes.application(server)["restarts"] == {}
    assert [(directory / day).read_text() for day in ("monday", "tuesday")] == ["one\n", "two\n"]


@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_a_log_that_is_made_anew_is_for_those_that_the_one_before_was_for(rewind: str, directory: pathlib.Path) -> None:
    write(directory, "a")
    log = directory / "app.log"
    log.chmod(0o600)
    # Whoever serves may write it.
    log.unlink()
    (directory / "worker.php").write_text((directory / "worker.php").read_text().replace("while (", "chmod(__DIR__ . '/app.log', 0600);\nwhile (", 1))
    with modes.hayate(directory, rewind, "shared", workers=1) as server:
        assert modes.get(server, "v=one") == "true"
        log.rename(directory / "app.log.1")
        assert modes.get(server, "v=two") == "true"
        assert [file.read_text() for file in (directory / "app.log.1", log)] == ["one\n", "two\n"]
        assert log.stat().st_mode & 0o777 == 0o600  # noqa: PLR2004


@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_a_pipe_in_the_place_of_a_log_holds_nobody_up(rewind: str, directory: pathlib.Path) -> None:
    write(directory, "a")
    log = directory / "app.log"
    with modes.hayate(directory, rewind, "shared", workers=1) as server:
        assert modes.get(server, "v=one") == "true"
        log.rename(directory / "app.log.1")
        os.mkfifo(log, 0o666)
        log.chmod(0o666)
        assert modes.get(server, "v=two") == "true"
        assert (directory / "app.log.1").read_text() == "one\ntwo\n"
