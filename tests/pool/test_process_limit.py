"""A cgroup that allows few processes (`pids.max`), as of a container: what fits into it by itself, and what is said where it does not."""

from __future__ import annotations

import concurrent.futures
import contextlib
import pathlib
import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest
import requests

from lib.cgroups import ProcessGroup, Unavailable, process_group
from lib.process import temporary_directory, wait_until
from lib.servers import Hayate, free_port, hayate_binary

SCRIPT = "<?php if (isset($_GET['sleep'])) { usleep((int) $_GET['sleep'] * 1000); } echo 'served';"
WORKER = f"<?php while (hayate_handle_request(function () {{ {SCRIPT.removeprefix('<?php')} }})) {{ }}"


@pytest.fixture
def group() -> Iterator[ProcessGroup]:
    with contextlib.ExitStack() as stack:
        try:
            group = stack.enter_context(process_group("pool"))
        except Unavailable as why:
            pytest.skip(str(why))
        yield group


@pytest.fixture
def site() -> Iterator[pathlib.Path]:
    directory = temporary_directory("processes")
    (directory / "index.php").write_text(SCRIPT)
    (directory / "worker.php").write_text(WORKER)
    yield directory
    shutil.rmtree(directory)


class Inside(Hayate):
    """It and all that it starts is in the group."""

    def __init__(self, *arguments, group: ProcessGroup, **more) -> None:
        super().__init__(*arguments, **more)
        self._group = group

    def command(self) -> list[str]:
        return self._group.enter([str(part) for part in super().command()])


def check(group: ProcessGroup, *arguments: object) -> str:
    command = group.enter([str(hayate_binary()), "check", *map(str, arguments)])
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def at_once(server: Hayate, requests_: int) -> set[tuple[int, str]]:
    def one(_: int) -> tuple[int, str]:
        answer = requests.get(f"{server.url}/?sleep=300", timeout=60)
        return answer.status_code, answer.text

    with concurrent.futures.ThreadPoolExecutor(requests_) as pool:
        return set(pool.map(one, range(requests_)))


def test_check_says_what_the_cgroup_allows_and_what_does_not_fit(group, site) -> None:
    assert "(cgroup)" not in re.sub(r"\d+ MB of memory \(cgroup\)", "", check(group, site)), "no limit yet"
    group.allow(100)
    said = check(group, site, "--workers", "1-4")
    assert "100 processes and threads (cgroup)" in said and "pids.max" not in said
    group.allow(40)
    said = check(group, site, "--workers", "4-20")
    assert "the cgroup allows 40 processes and threads (pids.max); PHP with all `workers` has 21, and the server itself up to " in said
    assert "Lower `workers`, or raise the limit (TasksMax= of systemd, --pids-limit of docker run" in said
    assert "This can be served." in said
    reload = check(group, site, "--workers", "10", "--front-threads", "1")
    assert "PHP during a reload, with the workers of before and the new ones, has 22" in reload


def test_by_default_there_are_no_more_workers_and_threads_than_fit(group, site) -> None:
    """And both generations of a reload, with requests under way."""
    group.allow(30)
    with Inside(site, worker=site / "worker.php", group=group) as server:
        assert at_once(server, 12) == {(200, "served")}
        reloaded = server.reload()
        assert reloaded.returncode == 0, reloaded.stderr
        assert at_once(server, 12) == {(200, "served")}
        assert "cannot" not in server.log() and "could not" not in server.log(), server.log()
    assert "workers     1\n" in (said := check(group, site)) or "workers     1-2\n" in said, said


@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_requests_wait_for_the_workers_that_could_be_forked(group, site, rewind) -> None:
    group.allow(32)
    flags = ["--workers", "1-24", "--rewind", rewind, "--front-threads", "1"]
    with Inside(site, worker=site / "worker.php", args=flags, group=group) as server:
        assert wait_until(lambda: "the cgroup allows 32 processes and threads (pids.max)" in server.log())
        # Workers are added while requests wait; how many it takes before the limit is met depends on how fast they come.

        def full() -> bool:
            assert at_once(server, 30) == {(200, "served")}
            return "cannot fork a worker" in server.log()

        assert wait_until(full), server.log()
        assert re.search(
            r"ERROR .*cannot fork a worker: Resource temporarily unavailable: the cgroup allows 32 processes and threads \(pids\.max\), of which \d+ "
            r"are there; raise that limit, or lower `workers`; \d+ workers serve",
            server.log(),
        ), server.log()
        assert "did not boot" not in server.log(), "it serves"
        assert at_once(server, 30) == {(200, "served")}


def test_a_start_that_does_not_fit_says_why(group, site) -> None:
    for allowed, workers in ((32, 24), (5, 1)):
        group.allow(allowed)
        command = [str(hayate_binary()), "serve", str(site), "--workers", str(workers), "--control", str(site / "control.sock")]
        command += ["--listen", f"127.0.0.1:{free_port()}"]
        done = subprocess.run(group.enter(command), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1, done
        reason = rf"hayate: .*the cgroup allows {allowed} processes and threads \(pids\.max\), of which \d+ are there; raise that limit, or lower `workers`"
        assert re.search(reason, done.stderr), done.stderr


def test_a_reload_that_does_not_fit_is_refused_and_what_serves_goes_on(group, site) -> None:
    with Inside(site, workers=2, group=group) as server:
        group.allow(group.used() + 1)
        reloaded = server.reload()
        assert reloaded.returncode == 1 and "(pids.max)" in reloaded.stderr, reloaded.stderr
        assert at_once(server, 8) == {(200, "served")}
        group.allow(None)
        assert server.reload().returncode == 0
