"""What a family of processes costs: CPU time, memory, context switches, read from /proc.

Promises figures of all processes of a server, of their threads, and of children that have ended in between.
"""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from lib.process import descendants

TICK = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cpu:
    """CPU time in seconds. `total` is exact to the nanosecond where the kernel counts so (schedstat); `user` and
    `system` are exact to a tick (10 ms) for each process."""

    total: float
    user: float
    system: float

    def __sub__(self, other: Cpu) -> Cpu:
        return Cpu(self.total - other.total, self.user - other.user, self.system - other.system)


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    return [pid, *descendants(pid)]


def cpu(pids: list[int]) -> Cpu:
    """CPU time of these processes and of their children that have ended and were waited for."""
    total = user = system = 0.0
    for pid in pids:
        fields = _read(pid, "stat").rpartition(")")[2].split()
        own_user, own_system, child_user, child_system = (int(field) * TICK for field in fields[11:15])
        user += own_user + child_user
        system += own_system + child_system
        exact = _runtime(pid)
        total += child_user + child_system + (own_user + own_system if exact is None else exact)
    return Cpu(total, user, system)


def _runtime(pid: int) -> float | None:
    """Seconds on a CPU, of all living threads; None where the kernel does not say."""
    nanoseconds = 0
    for thread in pathlib.Path(f"/proc/{pid}/task").iterdir():
        if not (thread / "schedstat").exists():
            return None
        nanoseconds += int((thread / "schedstat").read_text().split()[0])
    return nanoseconds / 1e9


@dataclass(frozen=True)
class Memory:
    """Bytes: `pss` shares a page among all processes that map it, `rss` counts it for each."""

    pss: int
    rss: int


def memory(pids: list[int]) -> Memory:
    """Memory of these processes together."""
    sums = {"Pss": 0, "Rss": 0}
    for pid in pids:
        for line in _read(pid, "smaps_rollup").splitlines():
            key, _, value = line.partition(":")
            if key in sums:
                sums[key] += int(value.split()[0]) * 1024
    return Memory(sums["Pss"], sums["Rss"])


@dataclass
class Instructions:
    """What processors executed for some processes, in user mode and in the kernel; empty until counting has ended."""

    counts: dict[str, int] = field(default_factory=dict)

    def of(self, mode: str) -> int:
        """Of `user` or `kernel`."""
        return self.counts.get(f"instructions:{mode[0]}", 0)


@contextmanager
def instructions(pids: list[int]) -> Iterator[Instructions]:
    """Counts meanwhile, by perf; unlike time, instructions cost the same on a busy machine. OSError: it cannot count."""
    counted = Instructions()
    command = ["perf", "stat", "-x", ",", "-e", "instructions:u,instructions:k", "-p", ",".join(map(str, pids))]
    counter = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        yield counted
    finally:
        counter.send_signal(signal.SIGINT)
        said = counter.communicate(timeout=30)[1]
    for line in said.splitlines():
        value, _, name, *_ = [*line.split(","), "", ""]
        if name.startswith("instructions:") and value.isdigit():
            counted.counts[name] = int(value)
    if len(counted.counts) != 2:
        raise OSError(f"perf stat counted nothing (is it installed, and does this machine have counters?): {said}")


def context_switches(pid: int) -> int:
    """Voluntary and other context switches of all living threads of a process."""
    count = 0
    for thread in pathlib.Path(f"/proc/{pid}/task").iterdir():
        for line in (thread / "status").read_text().splitlines():
            if "ctxt_switches" in line:
                count += int(line.split()[1])
    return count


def stolen() -> float:
    """Seconds of CPU that the hypervisor gave to others since boot, all cores together."""
    return int(pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[8]) * TICK


def _read(pid: int, name: str) -> str:
    return pathlib.Path(f"/proc/{pid}/{name}").read_text()
