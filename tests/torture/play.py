"""Plays programs under php-fpm, which boots for each request and so says what is right, and under Hayate in each mode.

Many programs share one server: each is an application of its own (under php-fpm: a location), with a directory of its own
to write to. A program's requests are made one after the other; what is compared is each answer, what was written at the
end of each request, and the files that are there afterwards. What no answer shows is asked of the server: why workers were
replaced, how many pages are hot, which processes are left.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import gzip
import os
import pathlib
import re
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from lib.client import encode, exchange
from lib.process import PATIENCE, ServerError, descendants, still_running, temporary_directory, wait_until
from lib.servers import ROOT, Hayate, NginxFpm

from .program import MODIFIED, Program
from .steps import ALONE, COSTS_CONNECTION, COSTS_DESCRIPTOR, HEAVY, MADE_ANEW, OF_SQLITE

HERE = pathlib.Path(__file__).parent
INI = {
    "display_errors": "0",
    "log_errors": "1",
    "memory_limit": "64M",
    "date.timezone": "Europe/Berlin",
    "apc.shm_size": "2M",
    "opcache.memory_consumption": "16",
    "opcache.interned_strings_buffer": "2",
    "session.save_handler": "files",
    "ffi.enable": "1",
    "apc.use_request_time": "1",
    "realpath_cache_ttl": "1",
}
#: The ways in which a program is played: keys of its application in hayate.toml.
MODES: dict[str, str] = {
    "verified": 'rewind = "on"\nrewind_verify = 1\nworkers = 1\nwarmup = []',
    "warm": 'rewind = "on"\nrewind_verify = 1\nworkers = 1\nwarmup = {warmup}\nconnections = "warm"',
    "several": 'rewind = "on"\nworkers = 2\nwarmup = []\nconnections = "warm"',
    "fork": 'rewind = "fork"\nworkers = {forking}\nwarmup = {warmup_of_fork}',
}
#: The same twice, and another one.
WARMUP = '["/?part=0&n=warm", "/?part=0&n=warm", "/?part=0&n=warm&other=1"]'
CLIENTS = 6
#: Requests of one program that are made at once.
AT_ONCE = 4
#: More pages than this are written by heavy requests only. So few of those in a row as OFTEN, with less than APART from one
#: to the next, make none hot, and after so many others as LIGHT none is hot any more: one that is not written has at most 32
#: looks, one in sixteen rewinds.
HOT = 400
OFTEN = 3
APART = 4
LIGHT = 1000
#: Seconds after which nothing that keeps a time may be at the boot's, and so many looks at it: one path is looked at anew when the worker
#: has answered somebody.
LATE = 4
LOOKS = 8
#: Seconds in which a request's end gives back what it has locked.
LOCKED = 10 * PATIENCE


@dataclasses.dataclass
class Outcome:
    """What came of a program: an answer and the log's lines for each request, and the files afterwards."""

    answers: list[tuple[int, str, tuple[str, ...]]]
    logs: list[list[str]]
    files: dict[str, str]
    #: Processes that answered, and which one it was, by the request's number.
    processes: set[str] = dataclasses.field(default_factory=set)
    by: dict[str, str] = dataclasses.field(default_factory=dict)
    #: What a late request is told of what keeps a time.
    late: str = ""
    #: Hayate's own word on it: why workers were replaced, whether it could not be rewound.
    restarts: dict[str, int] = dataclasses.field(default_factory=dict)
    declined: str | None = None
    #: What is wrong beside the answers.
    wrong: list[str] = dataclasses.field(default_factory=list)


class Bench:
    """A directory for one set of programs; a context manager. `names` are the programs' ("p0", "p1", …); `env` is what they are told."""

    def __init__(self, programs: Sequence[Program], env: Mapping[str, str]) -> None:
        self.programs = programs
        self.env = env
        self.dir = temporary_directory("torture")
        self.site = self.dir / "site"
        shutil.copytree(HERE / "site", self.site)
        self.names = [f"p{i}" for i in range(len(programs))]
        (self.dir / "programs").mkdir()
        for name, program in zip(self.names, programs, strict=True):
            program.write(self.dir / "programs" / name)
        for path in [self.site, *self.site.rglob("*"), self.dir / "programs"]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        for path in self.site.rglob("*.php"):
            os.utime(path, (MODIFIED, MODIFIED))

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *exc: object) -> None:
        for key in {path.read_text() for path in self.dir.rglob("*.semaphore")}:
            subprocess.run(["ipcrm", "-S", key], check=False, capture_output=True)
        shutil.rmtree(self.dir, ignore_errors=True)

    def scratch(self, mode: str, name: str) -> pathlib.Path:
        path = self.dir / "scratch" / mode / name
        if not path.exists():
            path.mkdir(parents=True)
            path.chmod(0o777)
        return path

    def reference(self) -> list[Outcome]:
        """By php-fpm with one child, so that the end of a request is over before the next begins."""
        for name in self.names:
            self.scratch("fpm", name)
        # A process for each request: php-fpm's own keep what a request tells the kernel of them.
        server = NginxFpm(self.site, ini=INI, workers=1, fpm={"pm.max_requests": 1, "rlimit_files": 4096})
        told = "".join(f" fastcgi_param {name} {value};" for name, value in self.env.items())
        server._values["extra"] = (
            f"location ~ ^/(p[0-9]+)/ {{ include {server.dir}/fastcgi.conf;"
            f" fastcgi_param SCRIPT_FILENAME {self.site}/worker.php;{told}"
            f" fastcgi_param HAYATE_PROGRAM {self.dir}/programs/$1;"
            f" fastcgi_param HAYATE_SCRATCH {self.dir}/scratch/fpm/$1; fastcgi_pass unix:{server.dir}/fpm.sock; }}"
        )
        with server:
            return [self._play(server.port, f"/{name}", "fpm", name, p) for name, p in self._pairs()]

    def _pairs(self) -> list[tuple[str, Program]]:
        return list(zip(self.names, self.programs, strict=True))

    def hayate(self, modes: Sequence[str], expected: Sequence[Outcome]) -> dict[str, list[Outcome]]:
        """By Hayate, in these modes at once."""
        config = []
        for mode in modes:
            for name, program in self._pairs():
                path = f"/{mode}-{name}"
                # What cannot be rewound is served in classic mode, if there is another script for that.
                front = "classic.php" if program.is_declined else "worker.php"
                warmup = WARMUP
                of_fork = '["/?part=0&n=warm", "/?part=0&n=warm"]' if program.warm else "[]"
                settings = MODES[mode].format(warmup=warmup, forking=2 if program.at_once else 1, warmup_of_fork=of_fork)
                config.append(
                    f'[[app]]\nname = "{mode}-{name}"\nroot = "{self.site}"\ndocument_root = "."\npath = "{path}"\n'
                    f'worker = "worker.php"\nfront_controller = "{front}"\n{settings}\n'
                    f'[app.env]\nHAYATE_PROGRAM = "{self.dir}/programs/{name}"\n'
                    f'HAYATE_SCRATCH = "{self.scratch(mode, name)}"\n'
                    + "".join(f'{key} = "{value}"\n' for key, value in self.env.items())
                )
        server = Hayate(None, config="\n".join(config), ini=INI, user="www-data" if ROOT else None, args=("--dev",))
        server.start_timeout = 120
        found: dict[str, list[Outcome]] = {}
        self.server = server
        left: dict[int, str] = {}
        orphans: set[int] = set()
        try:
            with server, concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
                began = time.monotonic()
                jobs = {
                    mode: [
                        pool.submit(self._play, server.port, f"/{mode}-{name}", mode, name, program, wanted)
                        for (name, program), wanted in zip(self._pairs(), expected, strict=True)
                    ]
                    for mode in modes
                }
                found = {mode: [job.result() for job in of_mode] for mode, of_mode in jobs.items()}
                time.sleep(max(0, began + LATE - time.monotonic()))
                late = [
                    pool.submit(self._look_at_clocks, server.port, f"/{mode}-{name}", wanted, outcome)
                    for mode in modes
                    for name, wanted, outcome in zip(self.names, expected, found[mode], strict=True)
                ]
                for job in late:
                    job.result()
                for app in server.status()["apps"]:
                    mode, _, name = app["name"].partition("-")
                    n = self.names.index(name)
                    self._judge(mode, app, self.programs[n], found[mode][n])
                left = descendants(server.pid)
                self.log = server.log()
        except ServerError as error:
            said = re.search(r"left processes behind: \[([\d, ]+)\]", str(error))
            if said is None:
                raise
            orphans = set(map(int, said[1].split(", ")))
        for mode, of_mode in found.items():
            for name, outcome in zip(self.names, of_mode, strict=True):
                strays = {pid: left[pid] for pid, _ in self._strays(mode, name) if pid in left}
                if orphans & strays.keys() or not wait_until(lambda strays=strays: not still_running(strays)):
                    outcome.wrong.append("a process that a request forked has outlived the server")
                    for pid in still_running(strays):
                        os.kill(pid, signal.SIGKILL)
        return found

    def _judge(self, mode: str, app: dict, program: Program, outcome: Outcome) -> None:
        """Says of an outcome what the server says of its application."""
        outcome.restarts = app["restarts"]
        fallback = app["fallback"] or {}
        outcome.declined = app.get("unavailable") or fallback.get("why")
        if program.place != "script" and not app.get("unavailable") and fallback.get("to") == "fork":
            outcome.declined = None  # as it has to be
        elif program.place != "script" and mode != "fork" and not outcome.declined:
            outcome.wrong.append(f"rewound, with the loop in {program.place}")
        if "could not be rewound within" in (outcome.declined or ""):
            outcome.declined = None  # its requests cost workers; so a fork for each is cheaper
        steps = program.steps() | {use.step for use in program.boot}
        if "rewind_connection" in outcome.restarts and not any({s, s.partition("/")[0]} & COSTS_CONNECTION for s in steps):
            outcome.wrong.append(f"a worker was lost for a connection: {outcome.restarts}")
        if "rewind_descriptors" in outcome.restarts and not any(s.partition("/")[0] in COSTS_DESCRIPTOR for s in steps):
            outcome.wrong.append(f"a worker was lost for a descriptor: {outcome.restarts}")
        numbers = {number: pid for _, body, _ in outcome.answers for _, pid, number in OWN.findall(body)}
        taken = [(pid, number) for _, body, _ in outcome.answers for _, pid, number in OWN.findall(body)]
        if mode == "several" and not (outcome.restarts or fallback) and any(numbers[number] != pid for pid, number in taken):
            outcome.wrong.append(f"two processes have the same: {taken}")
        daemons = [what.split()[2::2] for _, what in self._strays(mode, app["name"].partition("-")[2]) if what.startswith("daemon")]
        if daemons and mode != "fork" and not fallback and not outcome.restarts:
            outcome.wrong.append("a worker is rewound although a process it forked is left")
        # Others of its strays may have cost the program a worker.
        for process, number in daemons if mode != "fork" and not program.at_once else []:
            if any(pid == process and later > number for later, pid in outcome.by.items() if later.startswith("r")):
                outcome.wrong.append(f"a worker has answered although a process that it forked in {number} is left")

    def _play(
        self, port: int, path: str, mode: str, name: str, program: Program, wanted: Outcome | None = None
    ) -> Outcome:
        numbers = [f"r{i:02}" for i in range(len(program.order))]
        # Where several work, the next request must not meet the end of the one before: an answer comes before it.
        several = mode == "several"
        kinds = {use.step.partition("/")[0] for use in program.boot} | {use.step for use in program.boot}
        by_two = several and not program.at_once and not kinds & ALONE
        outcome = Outcome([], [], {})
        databases = any(use.step.partition("/")[0] in OF_SQLITE for use in program.boot)

        def ask(number: str, part: int) -> tuple[int, str, tuple[str, ...]]:
            request = encode("GET", f"{path}/?part={part}&n={number}", [("Host", "localhost"), ("Connection", "close")], b"")
            # A worker that is free answers again and again; so that the other one does, something else keeps it busy now and then.
            busy = self._one_busy(port, path, self.scratch(mode, name)) if by_two and number[-1] in "147" else contextlib.nullcontext()
            with busy:
                response = exchange(("127.0.0.1", port), request, timeout=60 * PATIENCE)
            assert response is not None
            for key, value in response.headers:
                if key.lower() == "x-process":
                    outcome.processes.add(value)
                    outcome.by[number] = value
            steps = tuple(value for key, value in response.headers if key.lower() == "x-step")
            if wanted is not None and (several or databases) and not program.at_once:
                wait_until(lambda: self._waits(f"{mode}-{name}"), 10, 0.01)
            if databases and (locked := _locked(self.scratch(mode, name))):
                outcome.wrong.append(f"{locked} is locked after request {number}")
            return response.status, response.body.decode(errors="replace"), steps

        # php-fpm's only child begins a last one, which does nothing, when the end of the one before is over.
        # Under Hayate it makes anew what the one before it has moved away, or written at its end.
        requests = list(zip(numbers, program.order, strict=True))
        if program.at_once and mode in ("several", "fork"):
            with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
                answers = list(pool.map(lambda one: ask(*one), requests))
        else:
            answers = [ask(*one) for one in requests]
        outcome.answers = answers
        if wanted is None or kinds & MADE_ANEW:
            ask("end", 0)
        if wanted is None:
            outcome.late = ask("late", 0)[1]

        def look() -> bool:
            outcome.logs = self._logs(self.scratch(mode, name), numbers)
            outcome.files = _files(self.scratch(mode, name))
            return wanted is None or (outcome.logs, outcome.files) == (wanted.logs, wanted.files)

        # A request's end may come after its answer.
        wait_until(look, 10, 0.05)
        heavy = in_a_row([any(use.step in HEAVY for use in program.parts[n - 1]) for n in program.order])
        many = any(use.step == "heavy/objects" for use in program.boot)
        if wanted is not None and mode in ("verified", "warm") and many:  # modes of one worker that is rewound
            self._look_at_heat(f"{mode}-{name}", heavy, lambda: ask("light", 0), outcome)
        return outcome

    @contextlib.contextmanager
    def _one_busy(self, port: int, path: str, scratch: pathlib.Path) -> Iterator[None]:
        """A worker that has a request which is over no sooner than this context."""
        busy, over = scratch / ".busy", scratch / ".over"
        request = encode("GET", f"{path}/?part=0&n=busy", [("Host", "localhost"), ("Connection", "close")], b"")
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(exchange, ("127.0.0.1", port), request, timeout=60 * PATIENCE)
            try:
                wait_until(busy.exists, 10, 0.005)
                yield
            finally:
                over.touch()
                answer.result()
                for path in (busy, over):
                    path.unlink(missing_ok=True)

    def _look_at_clocks(self, port: int, path: str, wanted: Outcome, outcome: Outcome) -> None:
        """Whether what keeps a time is as under php-fpm, which boots for each request. One of several workers is asked until it is."""
        request = encode("GET", f"{path}/?part=0&n=late", [("Host", "localhost"), ("Connection", "close")], b"")
        said = []
        for _ in range(LOOKS):
            response = exchange(("127.0.0.1", port), request, timeout=60 * PATIENCE)
            assert response is not None
            if response.status == 503 or response.body.decode() == wanted.late:
                return  # 503: it does not run here, and says so
            said.append(response.body.decode(errors="replace"))
            time.sleep(0.2)
        outcome.wrong.append(f"{LATE} seconds after the boot: expected {wanted.late!r}, found {said}")

    def _look_at_heat(self, name: str, heavy: int, light: Callable[[], object], outcome: Outcome) -> None:
        """Whether only pages are hot that requests go on writing, after so many heavy ones in a row and again after light ones."""
        if heavy <= OFTEN and self._hot_pages(name) >= HOT:
            outcome.wrong.append(f"{heavy} heavy requests in a row have made pages hot")
        for _ in range(0, LIGHT, 50):
            if self._hot_pages(name) < HOT:
                return
            for _ in range(50):
                light()
        outcome.wrong.append(f"pages are hot {LIGHT} requests after the last heavy one")

    def _hot_pages(self, name: str) -> int:
        wait_until(lambda: self._waits(name), 10, 0.01)
        (app,) = (app for app in self.server.status()["apps"] if app["name"] == name)
        return app["rewind"]["hot_pages"] if app["rewind"] else 0

    def _waits(self, name: str) -> bool:
        """Whether no worker of the application is at work."""
        (app,) = (app for app in self.server.status()["apps"] if app["name"] == name)
        # One that was replaced boots, and may empty a file for it.
        return len(app["workers"]) >= (2 if name.startswith("several-") else 1) and all(worker["state"] == "idle" for worker in app["workers"])

    def _strays(self, mode: str, name: str) -> list[tuple[int, str]]:
        """Processes that requests have forked, and what they are."""
        path = self.scratch(mode, name) / "strays"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(pid), what) for pid, _, what in (line.partition(" ") for line in lines)]

    @staticmethod
    def _logs(scratch: pathlib.Path, numbers: list[str]) -> list[list[str]]:
        lines: dict[str, list[str]] = {number: [] for number in numbers}
        log = scratch / "log"
        for line in log.read_text(errors="replace").splitlines() if log.exists() else []:
            number, _, text = line.partition(" ")
            if number in lines:
                lines[number].append(text)
        return list(lines.values())


def _files(scratch: pathlib.Path) -> dict[str, str]:
    """What lies there, in comparable words."""
    files: dict[str, str] = {}
    for path in sorted(scratch.rglob("*")):
        name = str(path.relative_to(scratch))
        # What the boot empties: php-fpm's last request has done nothing but boot.
        if path.is_dir() or name in ("log", "strays", ".busy", ".over") or path.suffix in (".emptied", ".semaphore"):
            continue
        # Of a connection that is open: those of php-fpm are closed.
        if name.endswith((".db-wal", ".db-shm")):
            continue
        try:
            files[name] = _content(path)
        except (OSError, EOFError, sqlite3.Error) as error:
            files[name] = f"unreadable: {type(error).__name__}"
    return files


def _content(path: pathlib.Path) -> str:
    if path.suffix == ".db":
        database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            return str(database.execute("SELECT n, v FROM t ORDER BY n").fetchall())
        finally:
            database.close()
    if path.name.endswith("-journal"):
        return "there"
    if path.suffix == ".jar":
        return " ".join(sorted(re.findall(r"\bc\d+\b", path.read_text())))
    if path.suffix == ".gz":
        return gzip.decompress(path.read_bytes()).decode(errors="replace")
    return path.read_text(errors="replace")


def _locked(scratch: pathlib.Path) -> str | None:
    """A SQLite database that nobody else can write to; None: all can be written to."""
    for path in sorted(scratch.glob("*.db")):
        with contextlib.closing(sqlite3.connect(path, timeout=LOCKED, isolation_level=None)) as database:
            try:
                database.execute("BEGIN EXCLUSIVE")
                database.execute("ROLLBACK")
            except sqlite3.OperationalError:
                return path.name
    return None


def in_a_row(heavy: Sequence[bool]) -> int:
    """How many heavy requests come one after the other, with less than APART from one to the next; at most so."""
    longest = row = 0
    last = -APART
    for n, one in enumerate(heavy):
        if one:
            row = row + 1 if n - last < APART else 1
            last = n
            longest = max(longest, row)
    return longest


OWN = re.compile(r"(?m)^(\w+)@(\d+)~(.*)$")
CHANCE = re.compile(r"(?m)^(\w+)~(.*)$")


def difference(expected: Outcome, found: Outcome, *, ordered: bool = True) -> str | None:
    """What is wrong with an outcome; None: nothing. Values drawn by chance repeat exactly where php-fpm's do.

    Unless `ordered`, what happens at a request's end may happen in any order: where warm-up requests have made objects,
    those of a request have other numbers, which say in which order destructors run.
    """
    if found.wrong:
        return "; ".join(found.wrong)
    if "rewind_memory" in found.restarts:
        return f"memory was not put back: {found.restarts}"
    if found.declined and "boot" in found.declined and all(status == 503 for status, _, _ in found.answers):
        return None  # it does not run here, and says so
    for n, (one, other) in enumerate(zip(expected.answers, found.answers, strict=True)):
        plain = [CHANCE.sub(r"\1~", OWN.sub(r"\1~", answer[1])) for answer in (one, other)]
        if (one[0], plain[0], one[2]) != (other[0], plain[1], other[2]):
            return f"answer {n}: expected {one[0]} {plain[0]!r} {one[2]}, found {other[0]} {plain[1]!r} {other[2]}"
    drawn = [[CHANCE.findall(body) for _, body, _ in outcome.answers] for outcome in (expected, found)]
    values = [[value for answer in of for _, value in answer] for of in drawn]
    for i, (theirs, ours) in enumerate(zip(*values, strict=True)):
        repeats = [[j for j, other in enumerate(of) if other == of[i]] for of in values]
        if repeats[0] != repeats[1]:
            return f"drawn values {i}: php-fpm's is that of {repeats[0]}, this one that of {repeats[1]}"
        if len(repeats[0]) > 1 and theirs != ours:
            return f"drawn values {i}: expected {theirs} as seeded, found {ours}"
    for n, (one, other) in enumerate(zip(expected.logs, found.logs, strict=True)):
        if one != other if ordered else sorted(one) != sorted(other):
            return f"end of request {n}: expected {one}, found {other}"
    if expected.files != found.files:
        names = {name for name in {*expected.files, *found.files} if expected.files.get(name) != found.files.get(name)}
        return "; ".join(
            f"file {name}: expected {expected.files.get(name)!r}, found {found.files.get(name)!r}" for name in sorted(names)
        )
    return None
