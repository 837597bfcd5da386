"""What a container is allowed of memory, processors and processes, set by its cgroup and those above: it is seen, and so many workers and threads there are
by default. Version 2 of the kernel's interface where it is mounted at /sys/fs/cgroup, else version 1. See test_process_limit.py as well."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator

import pytest
import requests

from lib.cgroups import Limits, Unavailable, is_version_2, limits
from lib.process import temporary_directory
from lib.servers import Hayate, hayate_binary

MB = 1 << 20
#: How the server may see its group: among the machine's, or as a container does.
WAYS = {
    "machine": Limits.enter,
    "container": Limits.enter_as_a_container,
    "part": Limits.enter_where_it_is_all_that_is_mounted,
}
Enter = Callable[[Limits, list[str]], list[str]]


@pytest.fixture
def group() -> Iterator[Limits]:
    with contextlib.ExitStack() as stack:
        try:
            group = stack.enter_context(limits("limits"))
        except Unavailable as why:
            pytest.skip(str(why))
        yield group


@pytest.fixture
def site() -> Iterator[pathlib.Path]:
    directory = temporary_directory("limits")
    (directory / "index.php").write_text("<?php echo 'served';")
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(params=WAYS)
def enter(request: pytest.FixtureRequest) -> Enter:
    return WAYS[request.param]


class Inside(Hayate):
    def __init__(self, *arguments, group: Limits, enter: Enter = Limits.enter, **more) -> None:
        super().__init__(*arguments, **more)
        self._group, self._enter = group, enter

    def command(self) -> list[str]:
        return self._enter(self._group, [str(part) for part in super().command()])


def seen(site: pathlib.Path, group: Limits, enter: Enter = Limits.enter) -> tuple[str, str]:
    """What `hayate check` says that it may use, and how many workers there are by default."""
    command = enter(group, [str(hayate_binary()), "check", str(site)])
    said = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True).stdout
    return re.search(r"(?m)^may use +(.*)$", said)[1], re.search(r"(?m)^ *workers +(\S+)$", said)[1]


def processors(many: int) -> str:
    return f"{many} processor" if many == 1 else f"{many} processors"


def most_workers(server: Hayate) -> int:
    return server.status()["apps"][0]["workers_max"]


def test_no_limit_is_none(group, site, enter) -> None:
    """`max`, as it is written in a new group, and in one whose limits were taken away again."""
    here = processors(len(os.sched_getaffinity(0)))
    assert seen(site, group, enter)[0] == here
    group.memory(512 * MB), group.processors(1), group.processes(100)
    assert seen(site, group, enter)[0] == "1 processor, 512 MB of memory (cgroup), 100 processes and threads (cgroup)"
    group.memory(None), group.processors(None), group.processes(None)
    assert seen(site, group, enter)[0] == here


def test_each_limit_is_seen_and_makes_fewer_workers(group, site, enter) -> None:
    here = processors(len(os.sched_getaffinity(0)))
    group.memory(192 * MB)
    assert seen(site, group, enter) == (f"{here}, 192 MB of memory (cgroup)", "1-3")
    group.memory(None)
    group.processes(30)
    may, workers = seen(site, group, enter)
    assert may == f"{here}, 30 processes and threads (cgroup)" and workers in ("1", "1-2"), workers


# Version 1 knows no memory.high.
if is_version_2():

    def test_memory_from_which_a_group_is_slowed_is_its_limit_where_that_is_less(group, site, enter) -> None:
        """`memory.high`, of systemd's MemoryHigh= and of clusters with MemoryQoS: who is above it is made to wait while its memory is taken back."""
        group.memory_from_which_it_is_slowed(192 * MB)
        assert seen(site, group, enter)[1] == "1-3"
        group.memory(256 * MB)
        assert "192 MB of memory" in seen(site, group, enter)[0]
        group.memory(128 * MB)
        assert "128 MB of memory" in seen(site, group, enter)[0]


def test_a_quota_of_processors_is_rounded_down_to_one_at_least(group, site, enter) -> None:
    here = len(os.sched_getaffinity(0))
    if here < 2:
        pytest.skip("one processor is all that this machine has")
    for quota, period, counted in ((0.25, 100_000, 1), (1.5, 20_000, 1), (2, 10_000, 2), (64, 100_000, here)):
        group.processors(quota, period)
        assert seen(site, group, enter)[0] == processors(counted), quota


def test_of_groups_within_each_other_the_least_limit_counts(group, site) -> None:
    """Whichever of them has it. A container sees no group above its own, and the kernel holds it to that one's limit all the same."""
    with group.inner() as inner:
        group.memory(128 * MB), group.processors(1), group.processes(100)
        inner.memory(1024 * MB), inner.processes(1000)
        # Version 1 refuses a quota that is more than the one above.
        inner.processors(2 if inner.version == 2 else None)
        outer = "1 processor, 128 MB of memory (cgroup), 100 processes and threads (cgroup)"
        assert seen(site, inner) == (outer, "1-2")
        group.memory(1024 * MB), group.processors(2), group.processes(1000)
        inner.memory(128 * MB), inner.processors(1), inner.processes(100)
        assert seen(site, inner) == (outer, "1-2")
        inner.memory(None), inner.processors(None), inner.processes(None)
        group.memory(256 * MB), group.processors(1), group.processes(200)
        assert seen(site, inner)[0] == "1 processor, 256 MB of memory (cgroup), 200 processes and threads (cgroup)"


def test_a_server_has_the_threads_and_workers_that_its_limits_leave(group, site, enter) -> None:
    group.memory(128 * MB), group.processors(1)
    with Inside(site, group=group, enter=enter) as server:
        assert requests.get(server.url, timeout=60).text == "served"
        assert len(server.status()["threads"]) == 1
        assert most_workers(server) == 2


def test_a_reload_follows_a_limit_of_memory_that_has_changed(group, site) -> None:
    """As of a pod that is resized in its place."""
    group.memory(128 * MB)
    with Inside(site, group=group) as server:
        assert most_workers(server) == 2
        group.memory(192 * MB)
        assert most_workers(server) == 2
        assert server.reload().returncode == 0
        assert most_workers(server) == 3
        assert requests.get(server.url, timeout=60).text == "served"
