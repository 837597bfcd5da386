"""Cgroups in which a server has little memory, or few processes. Version 1 and 2 of the kernel's interface; wants root."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import re
from collections.abc import Iterator

from .process import wait_until

TOP = pathlib.Path("/sys/fs/cgroup")


class Unavailable(RuntimeError):
    """This machine gives no such group; the text says why."""


@dataclasses.dataclass(frozen=True)
class MemoryGroup:
    """`procs` takes the number of a process, which with all that it starts is in the group from then on."""

    procs: pathlib.Path
    _limit: pathlib.Path
    _used: pathlib.Path
    _events: pathlib.Path

    def leave(self, room: int) -> None:
        """Allows as many bytes more than are used now."""
        self._limit.write_text(str(int(self._used.read_text()) + room))

    def unlimited(self) -> None:
        self._limit.write_text("max" if self._limit.name == "memory.max" else "-1")

    def kills(self) -> int:
        """How many of its processes the kernel has killed for want of memory."""
        return int(re.search(r"(?m)^oom_kill (\d+)$", self._events.read_text())[1])

    def enter(self, command: list[str]) -> list[str]:
        """That command, run in the group."""
        return _inside(self.procs, command)


@dataclasses.dataclass(frozen=True)
class ProcessGroup:
    """`procs` as above; threads count as processes."""

    procs: pathlib.Path
    _limit: pathlib.Path
    _used: pathlib.Path

    def allow(self, processes: int | None) -> None:
        """So many in all; `None`: any number."""
        self._limit.write_text("max" if processes is None else str(processes))

    def used(self) -> int:
        return int(self._used.read_text())

    def enter(self, command: list[str]) -> list[str]:
        """That command, run in the group."""
        return _inside(self.procs, command)


def _inside(procs: pathlib.Path, command: list[str]) -> list[str]:
    return ["/bin/sh", "-c", f'echo $$ > {procs} && exec "$@"', "sh", *command]


@contextlib.contextmanager
def memory_group(name: str) -> Iterator[MemoryGroup]:
    """A group of that name, without a limit yet; it goes when its processes have ended. Raises Unavailable."""
    with _group("memory", name) as (group, version):
        limit, used, events = {
            1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control"),
            2: ("memory.max", "memory.current", "memory.events"),
        }[version]
        if not (group / limit).exists():
            raise Unavailable("no cgroup for memory here")
        # Or nobody has too little memory where there is swap.
        for swap, value in (("memory.swap.max", "0"), ("memory.swappiness", "0")):
            if (group / swap).exists():
                (group / swap).write_text(value)
        yield MemoryGroup(group / "cgroup.procs", group / limit, group / used, group / events)


@contextlib.contextmanager
def process_group(name: str) -> Iterator[ProcessGroup]:
    """The same for processes."""
    with _group("pids", name) as (group, _):
        if not (group / "pids.max").exists():
            raise Unavailable("no cgroup for processes here")
        yield ProcessGroup(group / "cgroup.procs", group / "pids.max", group / "pids.current")


@contextlib.contextmanager
def _group(controller: str, name: str) -> Iterator[tuple[pathlib.Path, int]]:
    """A new group, and the version of the interface."""
    if os.geteuid() != 0:
        raise Unavailable("making a cgroup needs root")
    name = f"hayate-{name}-{os.getpid()}"
    try:
        if (TOP / "cgroup.controllers").exists():
            (TOP / "cgroup.subtree_control").write_text(f"+{controller}")
            group, version = TOP / name, 2
        else:
            group, version = TOP / controller / name, 1
        group.mkdir()
    except OSError as error:
        raise Unavailable(f"no cgroup for {controller} here: {error}") from error
    try:
        yield group, version
    finally:
        wait_until(lambda: (group / "cgroup.procs").read_text() == "")
        group.rmdir()
