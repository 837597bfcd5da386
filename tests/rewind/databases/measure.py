"""What a database connection costs under rewinding: prints the tables of docs/databases.md.

    HAYATE_BIN=target/release/hayate /usr/bin/python3 tests/rewind/databases/measure.py [SECONDS [KIND…]]

Each case is a request that reads one row by its key, from one client, one after the other. Processor time is user and
system, of Hayate's processes and of the database's, from /proc; latency as the client sees it. Rounds are interleaved,
so that a noisy neighbour harms all cases alike; medians are printed. The machine should be idle.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import shutil
import statistics
import sys
import time
from dataclasses import dataclass, field

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from lib.process import Server, accepts_unix, descendants, free_port  # noqa: E402
from lib.servers import Hayate  # noqa: E402
from rewind.databases_site import KINDS, SERVERS, Database, hayate  # noqa: E402
from rewind.keep_alive import KeepAlive  # noqa: E402
from rewind.postgresql import USER  # noqa: E402

TICK = 1e6 / os.sysconf("SC_CLK_TCK")
ROUNDS = 5
#: Case: how the connection is opened, what is asked for, how Hayate runs.
CASES = {
    "no connection": ("request", "/?do=nothing", ("--rewind", "on")),
    "opened in the request": ("request", "/?do=read&n=7", ("--rewind", "on")),
    "persistent": ("persistent", "/?do=read&n=7", ("--rewind", "on")),
    "opened at boot, not used": ("boot", "/?do=nothing", ("--rewind", "on")),
    "warm": ("start", "/?do=read&n=7", ("--rewind", "on", "--connections", "warm")),
    "kept from request to request (`rewind = \"off\"`)": ("request", "/?do=read&n=7", ("--rewind", "off")),
}


class PgBouncer(Server):
    """A pooler in front of a PostgreSQL server; each client has a server connection for as long as it is connected."""

    name = "pgbouncer"
    program = pathlib.Path("/usr/sbin/pgbouncer")

    def __init__(self, database: Database) -> None:
        super().__init__()
        self.port = free_port()
        target = database.env["DSN"].removeprefix("pgsql:").replace(";", " ")
        settings = {
            "unix_socket_dir": self.dir,
            "listen_port": self.port,
            "auth_type": "any",
            "pool_mode": "session",
            "server_reset_query": "DISCARD ALL",
        }
        lines = [f"{key} = {value}" for key, value in settings.items()]
        text = f"[databases]\npostgres = {target} user=postgres\n[pgbouncer]\n" + "\n".join(lines) + "\n"
        (self.dir / "pgbouncer.ini").write_text(text)
        shutil.chown(self.dir, USER)
        dsn = f"pgsql:host={self.dir};port={self.port};dbname=postgres"
        self.database = dataclasses.replace(database, env={**database.env, "DSN": dsn})

    def command(self) -> list[str]:
        # It refuses to run as root.
        change_user = ["/usr/bin/setpriv", f"--reuid={USER}", "--clear-groups"]
        return [*change_user, str(self.program), str(self.dir / "pgbouncer.ini")]

    def ready(self) -> bool:
        return accepts_unix(self.dir / f".s.PGSQL.{self.port}")


def cpu(*pids: int | None) -> float:
    """Microseconds of processor time of processes, their descendants and those of them that have ended."""
    total = 0.0
    for process in {one for pid in pids if pid for one in (pid, *descendants(pid))}:
        try:
            fields = pathlib.Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(int(ticks) for ticks in fields[11:15]) * TICK
    return total


@dataclass
class Case:
    name: str
    server: Hayate
    target: str
    #: The processes that are the database.
    database: tuple[int | None, ...]
    samples: list[tuple[float, float, float, float]] = field(default_factory=list)

    def run(self, seconds: float) -> None:
        latencies = []
        with KeepAlive(self.server.port) as client:
            for _ in range(20):
                client.get(self.target)
            before = cpu(self.server.pid), cpu(*self.database)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                started = time.perf_counter()
                status, _ = client.get(self.target)
                latencies.append((time.perf_counter() - started) * 1e6)
                assert status == 200
            after = cpu(self.server.pid), cpu(*self.database)
        n = len(latencies)
        latencies.sort()
        own, others = ((b - a) / n for a, b in zip(before, after))
        self.samples.append((own, others, latencies[n // 2], latencies[int(n * 0.99)]))

    def line(self) -> str:
        own, others, median, p99 = (statistics.median(column) for column in zip(*self.samples))
        return f"| {self.name} | {own:.0f} | {others:.0f} | {median:.0f} | {p99:.0f} |"


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 1.5
    for kind in sys.argv[2:] or KINDS:
        with contextlib.ExitStack() as stack:
            database = stack.enter_context(SERVERS[kind]())
            cases = []
            try:
                for name, (opened, target, args) in CASES.items():
                    server = hayate(database, opened, workers=1, args=args)
                    cases.append(Case(name, server.start(), target, (database.pid,)))
                if kind == "sqlite":
                    server = hayate(database, "boot", workers=1)
                    cases.append(Case("opened at boot", server.start(), "/?do=read&n=7", ()))
                if kind == "pgsql" and PgBouncer.program.exists():
                    pooler = stack.enter_context(PgBouncer(database))
                    server = hayate(pooler.database, "request", workers=1)
                    pids = (database.pid, pooler.pid)
                    cases.append(Case("opened in the request, PgBouncer", server.start(), "/?do=read&n=7", pids))
                for _ in range(ROUNDS):
                    for case in cases:
                        case.run(seconds)
            finally:
                for case in cases:
                    case.server.stop()
                    shutil.rmtree(case.server.root)
            print(f"\n| {kind} | Hayate, CPU µs | database, CPU µs | median µs | p99 µs |")
            print("| --- | --- | --- | --- | --- |")
            print("\n".join(case.line() for case in cases), flush=True)


if __name__ == "__main__":
    main()
