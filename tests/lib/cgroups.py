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


@dataclasses.dataclass(frozen=True)
class Limits:
    """A group for all that a container is limited by. Of version 1 it is three, one in the hierarchy of each controller."""

    version: int
    _groups: dict[str, pathlib.Path]

    def memory(self, allowed: int | None) -> None:
        """Bytes; `None`, here and below: no limit."""
        if self.version == 2:
            self._write("memory", "memory.max", "max" if allowed is None else allowed)
        else:
            self._write("memory", "memory.limit_in_bytes", -1 if allowed is None else allowed)

    def memory_from_which_it_is_slowed(self, allowed: int | None) -> None:
        """Of version 2 alone."""
        self._write("memory", "memory.high", "max" if allowed is None else allowed)

    def processors(self, allowed: float | None, period: int = 100_000) -> None:
        """How many, of each period of so many microseconds."""
        quota = None if allowed is None else round(allowed * period)
        if self.version == 2:
            self._write("cpu", "cpu.max", f"{'max' if quota is None else quota} {period}")
        else:
            self._write("cpu", "cpu.cfs_period_us", period)
            self._write("cpu", "cpu.cfs_quota_us", -1 if quota is None else quota)

    def processes(self, allowed: int | None) -> None:
        self._write("pids", "pids.max", "max" if allowed is None else allowed)

    def _write(self, controller: str, file: str, value: object) -> None:
        (self._groups[controller] / file).write_text(str(value))

    def enter(self, command: list[str]) -> list[str]:
        """That command, run in the group, which it sees as what it is: one of the machine's."""
        into = " && ".join(f"echo $$ > {group}/cgroup.procs" for group in self._places())
        return ["/bin/sh", "-c", f'{into} && exec "$@"', "sh", *command]

    def enter_as_a_container(self, command: list[str]) -> list[str]:
        """The same in a namespace of cgroups: the group is the root of all that it sees."""
        # The kernel does not mount a hierarchy where it already is.
        mount = f"mount -t tmpfs tmpfs {TOP}"
        if self.version == 2:
            mount += f" && mount -t cgroup2 cgroup2 {TOP}"
        else:
            mount += "".join(f" && mkdir {TOP / one} && mount -t cgroup -o {one} cgroup {TOP / one}" for one in self._groups)
        return self.enter(["unshare", "--cgroup", "--mount", "/bin/sh", "-c", f'{mount} && exec "$@"', "sh", *command])

    def enter_where_it_is_all_that_is_mounted(self, command: list[str]) -> list[str]:
        """In the machine's namespace, as with `--cgroupns=host`: it reads of a path that is not there, and sees the group at the top."""
        tops = {1: {one: TOP / one for one in self._groups}, 2: dict.fromkeys(self._groups, TOP)}[self.version]
        mount = " && ".join(sorted({f"mount --bind {self._groups[one]} {top}" for one, top in tops.items()}))
        return self.enter(["unshare", "--mount", "/bin/sh", "-c", f'{mount} && exec "$@"', "sh", *command])

    @contextlib.contextmanager
    def inner(self) -> Iterator[Limits]:
        """A group within it; it itself is to have no processes of its own meanwhile."""
        with contextlib.ExitStack() as stack:
            groups = {one: stack.enter_context(_below(group, one, "inner", self.version)) for one, group in self._groups.items()}
            yield Limits(self.version, groups)

    def _places(self) -> list[pathlib.Path]:
        return sorted(set(self._groups.values()))


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
def limits(name: str) -> Iterator[Limits]:
    """The same for memory, processors and processes at once."""
    with contextlib.ExitStack() as stack:
        made = {one: stack.enter_context(_group(one, name)) for one in ("cpu", "memory", "pids")}
        version = made["cpu"][1]
        files = {"cpu": ("cpu.cfs_quota_us", "cpu.max")[version - 1], "memory": ("memory.limit_in_bytes", "memory.max")[version - 1], "pids": "pids.max"}
        for controller, (group, _) in made.items():
            if not (group / files[controller]).exists():
                raise Unavailable(f"no cgroup for {controller} here")
        yield Limits(version, {controller: group for controller, (group, _) in made.items()})


def is_version_2() -> bool:
    """Of the kernel's interface."""
    return (TOP / "cgroup.controllers").exists()


@contextlib.contextmanager
def _group(controller: str, name: str) -> Iterator[tuple[pathlib.Path, int]]:
    """A new group, and the version of the interface."""
    if os.geteuid() != 0:
        raise Unavailable("making a cgroup needs root")
    version = 2 if is_version_2() else 1
    above = TOP if version == 2 else TOP / controller
    with _below(above, controller, f"hayate-{name}-{os.getpid()}", version) as group:
        yield group, version


@contextlib.contextmanager
def _below(above: pathlib.Path, controller: str, name: str, version: int) -> Iterator[pathlib.Path]:
    """A new group in that one. Of version 2 one group has several controllers: who makes it first removes it."""
    group = above / name
    made = False
    try:
        if version == 2:
            (above / "cgroup.subtree_control").write_text(f"+{controller}")
        if version == 1 or not group.exists():
            group.mkdir()
            made = True
    except OSError as error:
        raise Unavailable(f"no cgroup for {controller} here: {error}") from error
    try:
        yield group
    finally:
        if made:
            wait_until(lambda: (group / "cgroup.procs").read_text() == "")
            group.rmdir()
