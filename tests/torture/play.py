"""Plays programs under php-fpm, which boots for each request and so says what is right, and under Hayate in each mode.

Many programs share one server: each is an application of its own (under php-fpm: a location), with a directory of its own
to write to. A program's requests are made one after the other; what is compared is each answer, what was written at the
end of each request, and the files that are there afterwards.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import gzip
import os
import pathlib
import re
import shutil
import sqlite3
from collections.abc import Mapping, Sequence

from lib.client import encode, exchange
from lib.process import PATIENCE, temporary_directory, wait_until
from lib.servers import ROOT, Hayate, NginxFpm

from .program import MODIFIED, Program

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
}
#: The ways in which a program is played: keys of its application in hayate.toml.
MODES: dict[str, str] = {
    "verified": 'rewind = "on"\nrewind_verify = 1\nworkers = 1\nwarmup = []',
    "warm": 'rewind = "on"\nrewind_verify = 1\nworkers = 1\nwarmup = ["{path}/?part=0&n=warm", "{path}/?part=0&n=warm"]\nconnections = "warm"',
    "several": 'rewind = "on"\nworkers = 2\nwarmup = []\nconnections = "warm"',
    "fork": 'rewind = "fork"\nworkers = 1\nwarmup = []',
}
CLIENTS = 6


@dataclasses.dataclass
class Outcome:
    """What came of a program: an answer and the log's lines for each request, and the files afterwards."""

    answers: list[tuple[int, str, tuple[str, ...]]]
    logs: list[list[str]]
    files: dict[str, str]
    #: Hayate's own word on it: why workers were replaced, whether it could not be rewound.
    restarts: dict[str, int] = dataclasses.field(default_factory=dict)
    declined: str | None = None


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
        server = NginxFpm(self.site, ini=INI, workers=1)
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
            for name in self.names:
                path = f"/{mode}-{name}"
                config.append(
                    f'[[app]]\nname = "{mode}-{name}"\nroot = "{self.site}"\ndocument_root = "."\npath = "{path}"\n'
                    f'worker = "worker.php"\nfront_controller = "worker.php"\n{MODES[mode].format(path="")}\n'
                    f'[app.env]\nHAYATE_PROGRAM = "{self.dir}/programs/{name}"\n'
                    f'HAYATE_SCRATCH = "{self.scratch(mode, name)}"\n'
                    + "".join(f'{key} = "{value}"\n' for key, value in self.env.items())
                )
        server = Hayate(None, config="\n".join(config), ini=INI, user="www-data" if ROOT else None, args=("--dev",))
        server.start_timeout = 120
        found: dict[str, list[Outcome]] = {}
        self.server = server
        with server, concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            jobs = {
                mode: [
                    pool.submit(self._play, server.port, f"/{mode}-{name}", mode, name, program, wanted)
                    for (name, program), wanted in zip(self._pairs(), expected, strict=True)
                ]
                for mode in modes
            }
            found = {mode: [job.result() for job in of_mode] for mode, of_mode in jobs.items()}
            for app in server.status()["apps"]:
                mode, _, name = app["name"].partition("-")
                outcome = found[mode][self.names.index(name)]
                outcome.restarts = app["restarts"]
                outcome.declined = app.get("unavailable") or (app["fallback"] or {}).get("why")
            self.log = server.log()
        return found

    def _play(
        self, port: int, path: str, mode: str, name: str, program: Program, wanted: Outcome | None = None
    ) -> Outcome:
        numbers = [f"r{i:02}" for i in range(len(program.order))]
        answers = []
        # Where several work, the next request must not meet the end of the one before: an answer comes before it.
        several = "workers = 1" not in MODES.get(mode, "workers = 1")
        # php-fpm's only child begins the last one, which does nothing, when the end of the one before is over.
        more = [("end", 0)] if wanted is None else []
        for number, part in [*zip(numbers, program.order, strict=True), *more]:
            request = encode("GET", f"{path}/?part={part}&n={number}", [("Host", "localhost"), ("Connection", "close")], b"")
            response = exchange(("127.0.0.1", port), request, timeout=60 * PATIENCE)
            assert response is not None
            steps = tuple(value for key, value in response.headers if key.lower() == "x-step")
            answers.append((response.status, response.body.decode(errors="replace"), steps))
            if several:
                wait_until(lambda: self._waits(f"{mode}-{name}"), 10, 0.01)
        outcome = Outcome(answers[: len(numbers)], [], {})

        def look() -> bool:
            outcome.logs = self._logs(self.scratch(mode, name), numbers)
            outcome.files = _files(self.scratch(mode, name))
            return wanted is None or (outcome.logs, outcome.files) == (wanted.logs, wanted.files)

        # A request's end may come after its answer.
        wait_until(look, 3, 0.05)
        return outcome

    def _waits(self, name: str) -> bool:
        """Whether no worker of the application is at work."""
        (app,) = (app for app in self.server.status()["apps"] if app["name"] == name)
        return all(worker["state"] == "idle" for worker in app["workers"])

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
        if path.is_dir() or name == "log":
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
    if path.suffix == ".gz":
        return gzip.decompress(path.read_bytes()).decode(errors="replace")
    return path.read_text(errors="replace")


CHANCE = re.compile(r"(?m)^(\w+)~(.*)$")


def difference(expected: Outcome, found: Outcome, *, ordered: bool = True) -> str | None:
    """What is wrong with an outcome; None: nothing. Values drawn by chance repeat exactly where php-fpm's do.

    Unless `ordered`, what happens at a request's end may happen in any order: where warm-up requests have made objects,
    those of a request have other numbers, which say in which order destructors run.
    """
    if "rewind_memory" in found.restarts:
        return f"memory was not put back: {found.restarts}"
    if found.declined and "boot" in found.declined and all(status == 503 for status, _, _ in found.answers):
        return None  # it does not run here, and says so
    for n, (one, other) in enumerate(zip(expected.answers, found.answers, strict=True)):
        plain = [CHANCE.sub(r"\1~", answer[1]) for answer in (one, other)]
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
