"""Everything at once, for as long as asked, and then the books: what was sent, what was answered, what the log and the metrics say.

    python3 -m soak --minutes 30

Requests sent = answered + given up by us + cut where a process was killed under them; each that was answered stands in the access log once,
with its status, and what was given up after its head had gone once as well; the metrics count as many as the log has lines. Nothing hangs, nobody
is refused, nothing panics; memory, descriptors, threads and temporary files of the server are flat, and its PHP processes are those it knows of.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from lib.cgroups import MemoryGroup, Unavailable, memory_group  # noqa: E402
from lib.process import descendants, free_port, temporary_directory, wait_until  # noqa: E402
from lib.servers import ROOT, Hayate, ServerError  # noqa: E402

from soak import site  # noqa: E402
from soak.chaos import Chaos  # noqa: E402
from soak.visitors import Visit, Visitor  # noqa: E402

CLIENTS = 12
#: Kinds of visits that end with their worker, so that the answer may be cut or 502.
DEADLY = {"crash.php", "crash_late.php"}
#: KiB that the server's own processes may grow by between a third of the run and its end.
GROWTH_KIB = 24 << 10


@dataclasses.dataclass(frozen=True)
class Held:
    """What the server's own processes, not PHP's, hold."""

    kib: int
    descriptors: int
    threads: int


def _servers(pid: int) -> list[int]:
    """The server's processes that run no PHP."""
    pids = [pid]
    for child in descendants(pid):
        with contextlib.suppress(OSError):
            if "hayate-php" not in os.readlink(f"/proc/{child}/exe"):
                pids.append(child)
    return pids


def _php(pid: int) -> set[int]:
    """The processes that run PHP."""
    found = set()
    for child in descendants(pid):
        with contextlib.suppress(OSError):
            if "hayate-php" in os.readlink(f"/proc/{child}/exe"):
                found.add(child)
    return found


def _known_php(server: Hayate) -> set[int]:
    """Those that the server knows of."""
    apps = server.status()["apps"]
    return {app["zygote"] for app in apps} | {worker["pid"] for app in apps for worker in app["workers"]}


def _used(disk: pathlib.Path) -> tuple[int, int]:
    """Blocks and files of a file system that are used: temporary files have no names."""
    of = os.statvfs(disk)
    return of.f_blocks - of.f_bfree, of.f_files - of.f_ffree


def held(pid: int) -> Held:
    kib = descriptors = threads = 0
    for one in _servers(pid):
        with contextlib.suppress(OSError):
            status = (pathlib.Path("/proc") / str(one) / "status").read_text()
            kib += int(re.search(r"RssAnon:\s+(\d+)", status).group(1))
            threads += int(re.search(r"Threads:\s+(\d+)", status).group(1))
            descriptors += len(os.listdir(f"/proc/{one}/fd"))
    return Held(kib, descriptors, threads)


def _opened(pid: int) -> list[str]:
    """What a process has open; nothing if it is gone."""
    try:
        return [f"{fd} {os.readlink(f'/proc/{pid}/fd/{fd}')}" for fd in sorted(os.listdir(f"/proc/{pid}/fd"), key=int)]
    except OSError:
        return []


def opened_by_php(server: Hayate) -> dict[str, list[str]]:
    """What the process of each application that has most open has open, once each has a worker that is ready.

    One that boots has less, and an application that is rewound has twice as much as a classic one. Whose zygote or front was killed
    boots anew.
    """
    found: dict[str, list[str]] = {}

    def look() -> bool:
        try:
            apps = server.status()["apps"]
        except ServerError:
            return False
        for app in apps:
            ready = [_opened(worker["pid"]) for worker in app["workers"] if worker["state"] in ("idle", "serving")]
            zygote = _opened(app["zygote"]) if app["zygote"] else []
            found[app["name"]] = max([*ready, zygote], key=len) if any(ready) else []
        return bool(found) and all(found.values())

    if not wait_until(look):
        raise RuntimeError(f"no worker of an application became ready: {found}")
    return found


@contextlib.contextmanager
def small_disk(directory: pathlib.Path) -> Iterator[pathlib.Path | None]:
    """A file system of 64 MB for temporary files, which root may make; None for others."""
    if not ROOT:
        yield None
        return
    directory.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,mode=1777", "tmpfs", directory], check=False).returncode:
        yield None
        return
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", directory], check=False)


class Books:
    """What came of all visits."""

    def __init__(self) -> None:
        self.visits: list[Visit] = []
        self._lock = threading.Lock()

    def enter(self, visit: Visit) -> None:
        with self._lock:
            self.visits.append(visit)

    def judge(self, log: list[dict], metrics: str, chaos: Chaos) -> list[str]:
        """What does not add up."""
        faults = list(chaos.faults)
        lines = collections.defaultdict(list)
        for line in log:
            if found := re.search(r"[?&]id=(\d+)", line["target"]):
                lines[found.group(1)].append(line["status"])
        ends: collections.Counter[str] = collections.Counter()
        for visit in self.visits:
            ends[visit.end] += 1
            written = lines.get(visit.id, [])
            # What was under way when a front was killed; and lines that it had not written yet.
            lost = any(visit.at < gone and killed < visit.until for killed, gone in chaos.front_kills)
            unwritten = any(visit.at < gone and killed - 8 < visit.until for killed, gone in chaos.front_kills)
            if visit.end in ("hung", "refused") or (visit.end == "cut" and not (chaos.done or visit.kind in DEADLY)):
                if not lost:
                    faults.append(f"{visit.kind} {visit.id}: {visit.end}")
            if visit.end == "answered" and written != [visit.status] and not unwritten:
                faults.append(f"{visit.kind} {visit.id}: answered with {visit.status}, in the log {written}")
            if visit.end == "left" and visit.asked and len(written) != 1 and not unwritten:
                faults.append(f"{visit.kind} {visit.id}: all of it was sent, in the log {written}")
            if 499 in written and visit.end != "left":
                faults.append(f"{visit.kind} {visit.id}: {visit.end}, and in the log as one that was given up")
            if len(written) > 1:
                faults.append(f"{visit.kind} {visit.id}: in the log {len(written)} times")
        # A killed process costs the requests it had; a zygote has four workers at most, and so has a reload's one.
        spoilt = sum(visit.end == "cut" or visit.status == 502 for visit in self.visits if visit.kind not in DEADLY)
        killed = chaos.done.get("kill_worker", 0) + 4 * sum(n for deed, n in chaos.done.items() if deed.endswith("zygote"))
        killed += chaos.done.get("stop_worker", 0) + chaos.starved + sum(self._under_way(*kill) for kill in chaos.front_kills)
        if spoilt > killed:
            faults.append(f"{spoilt} requests were cut or answered with 502, for {killed} workers that were killed under one")
        # What is in the page cache gives way first, so that not each time somebody is killed.
        if chaos.done.get("starve", 0) >= 5 and chaos.starved == 0:
            faults.append("memory was little, and nobody was killed")
        unknown = lines.keys() - {visit.id for visit in self.visits}
        if unknown:
            faults.append(f"in the log, but never sent: {sorted(unknown)[:5]}")
        counted = sum(float(n) for n in re.findall(r"(?m)^hayate_requests_total\{[^}]*\} (\S+)", metrics))
        counted += sum(float(n) for n in re.findall(r"(?m)^hayate_requests_refused_total (\S+)", metrics))
        # Those of the last front: what it has served since the one before was killed, or was seen to be gone.
        killed, gone = max(chaos.front_kills, default=(0.0, 0.0))
        most, least = (sum(line["time"] > since for line in log) for since in (killed, gone))
        if not least <= counted <= most:
            faults.append(f"the metrics count {counted:.0f} requests, the log has {least} to {most} lines")
        if panics := sum(float(n) for n in re.findall(r"(?m)^hayate_panics_total (\S+)", metrics)):
            faults.append(f"{panics:.0f} panics")
        self.ends = ends
        return faults

    def _under_way(self, since: float, until: float) -> int:
        return sum(visit.at < until and since < visit.until for visit in self.visits)


def client(port: int, seed: int, until: float, books: Books) -> None:
    visitor = Visitor(port, random.Random(seed))
    while time.monotonic() < until:
        books.enter(visitor.visit())


def soak(seconds: float, seed: int, fronts: bool = False) -> list[str]:
    """Runs it, with fronts that are killed if asked for; returns what was wrong, and prints what there was."""
    directory = temporary_directory("soak")
    chance = random.Random(seed)
    port = free_port()
    log = directory / "log"
    log.mkdir()
    log.chmod(0o777)
    user = "www-data" if ROOT else None
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        full = stack.enter_context(small_disk(directory / "tmp"))
        empty = _used(full) if full is not None else None
        root = site.make(directory)
        text = site.config(root, port, log / "access.log")
        env = {"TMPDIR": str(full)} if full is not None else {}
        memory = None
        with contextlib.suppress(Unavailable):
            memory = stack.enter_context(memory_group("soak"))
        server = SoakServer(port, text, env, user, memory)
        stack.enter_context(server)
        books, chaos = Books(), Chaos(server, chance, full, memory, fronts)
        begin = time.monotonic()
        until = begin + seconds
        threads = [
            threading.Thread(target=client, args=(port, chance.randrange(1 << 32), until, books)) for _ in range(CLIENTS)
        ]
        for thread in threads:
            thread.start()
        chaos.start()
        time.sleep(seconds / 3)
        with chaos.deed:
            early_php = opened_by_php(server)
            early = held(server.pid)
        for thread in threads:
            thread.join()
        chaos.stop()
        # What was given up by us ends at its own time.
        wait_until(lambda: _in_flight(server) == 0)
        time.sleep(1.5)
        late_php = opened_by_php(server)
        late = held(server.pid)
        metrics = server.metrics()
        if not wait_until(lambda: _php(server.pid) == _known_php(server)):
            chaos.faults.append(f"PHP processes {_php(server.pid)}, of which the server knows {_known_php(server)}")
        if full is not None and not wait_until(lambda: _used(full) == empty):
            chaos.faults.append(f"temporary files were left: blocks and files {_used(full)}, before {empty}, names {list(full.iterdir())}")
        statuses = collections.Counter(visit.status for visit in books.visits if visit.end == "answered")
        restarts = {app["name"]: app["restarts"] for app in server.status()["apps"]}
        server.stop()
        lines = [json.loads(line) for file in log.iterdir() for line in file.read_text().splitlines()]
        faults = books.judge(lines, metrics, chaos)
        if fronts and not chaos.front_kills:
            faults.append("no front was killed")
        if late.kib > early.kib + GROWTH_KIB or late.threads > early.threads + 4:
            faults.append(f"the server grew: {early} → {late}")
        if late.descriptors > early.descriptors + 4:
            faults.append(f"descriptors were left: {early} → {late}")
        for app, opened in late_php.items():
            if len(opened) > len(early_php[app]) + 4:
                faults.append(f"descriptors were left in PHP, of {app}: {early_php[app]} → {opened}")
        print(
            f"soak of {seconds:.0f} s, seed {seed}: {len(books.visits)} requests sent, {dict(books.ends)}; "
            f"{len(lines)} lines in the log; statuses {dict(sorted(statuses.items()))}\n"
            f"disturbed: {chaos.done}; starved: {chaos.starved}; replaced: {restarts}\nheld at a third {early}, at the end {late}\n"
            f"open in PHP at a third { {app: len(opened) for app, opened in early_php.items()} }, "
            f"at the end { {app: len(opened) for app, opened in late_php.items()} }",
            file=sys.stderr,
        )
        return faults


def _in_flight(server: SoakServer) -> float:
    found = re.findall(r"(?m)^hayate_requests_in_flight\{[^}]*\} (\S+)", server.metrics())
    return sum(float(n) for n in found)


class SoakServer(Hayate):
    """Hayate with the soak's own configuration."""

    def __init__(self, port: int, text: str, env: dict[str, str], user: str | None, memory: MemoryGroup | None) -> None:
        super().__init__(None, config=text, env=env, access_log=None, user=user)
        self._port = port
        self._memory = memory
        self.stop_timeout = 40.0

    def command(self):
        command = list(super().command())
        self.port = self._port
        at = command.index("--listen")
        del command[at : at + 2]
        return self._memory.enter(command) if self._memory is not None else command


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--fronts", action="store_true", help="kill the front as well; the books are then less exact")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 1 << 32))
    arguments = parser.parse_args()
    faults = soak(arguments.minutes * 60, arguments.seed, arguments.fronts)
    for fault in faults[:50]:
        print("FAULT", fault)
    print(f"{len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
