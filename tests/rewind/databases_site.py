"""The database servers, filled, and Hayate with an application that uses one of them (databases/worker.php)."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from lib.process import temporary_directory
from lib.servers import PHP, Hayate, MariaDB, Redis

from .matrix_site import USER
from .postgresql import PostgreSQL

KINDS = ("mysql", "pgsql", "sqlite", "redis")
OPENED = ("request", "persistent", "boot")
ROWS = 200


def word(n: int) -> str:
    return f"word {n}"


TABLES = (
    "CREATE TABLE items (id INTEGER PRIMARY KEY, word VARCHAR(50))",
    "CREATE TABLE written (word VARCHAR(50))",
    "INSERT INTO items VALUES " + ", ".join(f"({n}, '{word(n)}')" for n in range(1, ROWS + 1)),
)


@dataclass
class Database:
    """A filled database as the application sees it, and what the tests ask of it from outside."""

    kind: str
    env: dict[str, str]
    #: How many writes were committed.
    written: Callable[[], int]
    #: Connections that are open now, the asking one not counted.
    connections: Callable[[], int]
    #: Connections whose client went away without a word, since the server began.
    aborted: Callable[[], int]
    #: The server's process.
    pid: int | None


@contextmanager
def mysql() -> Iterator[Database]:
    with MariaDB() as server:
        for statement in TABLES:
            server.sql(statement, server.database)

        def status(name: str) -> int:
            return int(server.sql(f"SHOW GLOBAL STATUS LIKE '{name}'").split()[-1])

        env = {
            "DSN": f"mysql:unix_socket={server.socket};dbname={server.database}",
            "USER_NAME": server.user,
            "PASSWORD": server.password,
        }
        yield Database(
            "mysql",
            env,
            lambda: int(server.sql("SELECT count(*) FROM written", server.database)),
            lambda: status("Threads_connected") - 1,
            lambda: status("Aborted_clients"),
            server.pid,
        )


@contextmanager
def pgsql() -> Iterator[Database]:
    with PostgreSQL() as server:
        for statement in TABLES:
            server.sql(statement)
        env = {"DSN": f"pgsql:host={server.dir};port={server.port};dbname=postgres", "USER_NAME": "postgres"}
        clients = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
        yield Database(
            "pgsql",
            env,
            lambda: int(server.sql("SELECT count(*) FROM written")),
            lambda: int(server.sql(clients)) - 1,
            lambda: len(re.findall("unexpected EOF on client connection|could not receive data", server.log())),
            server.pid,
        )


@contextmanager
def sqlite() -> Iterator[Database]:
    directory = temporary_directory("sqlite")
    file = directory / "database"
    run = [f"$d = new PDO('sqlite:{file}');", *(f'$d->exec("{statement}");' for statement in TABLES)]
    subprocess.run([PHP, "-d", "xdebug.mode=off", "-r", "".join(run)], check=True, timeout=60)
    for path in (directory, file):
        path.chmod(0o777 if path.is_dir() else 0o666)

    def count() -> int:
        code = f"echo (new PDO('sqlite:{file}'))->query('SELECT count(*) FROM written')->fetchColumn();"
        command = [PHP, "-d", "xdebug.mode=off", "-r", code]
        return int(subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout)

    yield Database("sqlite", {"DSN": f"sqlite:{file}"}, count, lambda: 0, lambda: 0, None)
    shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def redis() -> Iterator[Database]:
    with Redis() as server:

        def cli(*command: str) -> str:
            line = ["/usr/bin/redis-cli", "-s", str(server.socket), *command]
            return subprocess.run(line, check=True, capture_output=True, text=True, timeout=60).stdout

        for n in range(1, ROWS + 1):
            cli("SET", f"item{n}", word(n))
        yield Database(
            "redis",
            {"DSN": str(server.socket)},
            lambda: int(cli("GET", "written").strip() or 0),
            lambda: len(cli("CLIENT", "LIST").splitlines()) - 1,
            lambda: 0,
            server.pid,
        )


SERVERS = {"mysql": mysql, "pgsql": pgsql, "sqlite": sqlite, "redis": redis}


def hayate(database: Database, opened: str, *, workers: int = 4, args: Sequence[str] = ("--rewind", "on")) -> Hayate:
    """The application on this database, its connection opened in one of the ways of OPENED."""
    env = {**database.env, "KIND": database.kind, "OPENED": opened}
    flags = [flag for name, value in env.items() for flag in ("--env", f"{name}={value}")]
    directory = temporary_directory("databases")
    shutil.copy(pathlib.Path(__file__).parent / "databases/worker.php", directory)
    return Hayate(directory, worker=directory / "worker.php", workers=workers, user=USER, args=(*flags, *args))
