"""What the boot has made and a request connects is the request's: closed with its end, before the answer is complete, with its goodbye.

So who asks next, of whichever worker, finds its locks free. (A server in its own process takes a moment for that, whoever says goodbye.)
"""

from __future__ import annotations

import pathlib
import re
import time
from collections.abc import Iterator

import pytest

from lib.servers import ROOT, MariaDB

from . import modes
from .postgresql import PostgreSQL

Databases = tuple[tuple[MariaDB, PostgreSQL], dict[str, str]]
#: In the boot, and in the request: whether it has the lock, of which each of the next ones has to say the same.
KINDS = {
    "mysqli_init": ("$it = mysqli_init();", "$it->real_connect(null, USER, PASSWORD, DATABASE, 0, SOCKET);", "mysqli"),
    "new mysqli": ("$it = new mysqli();", "$it->real_connect(null, USER, PASSWORD, DATABASE, 0, SOCKET);", "mysqli"),
    "mysqli": ("class Late extends mysqli { CONSTRUCT }", "$it->late(null, USER, PASSWORD, DATABASE, 0, SOCKET);", "mysqli"),
    "pdo": ("class Late extends PDO { CONSTRUCT }", "$it->late('mysql:unix_socket=' . SOCKET . ';dbname=' . DATABASE, USER, PASSWORD);", "pdo"),
    "pdo_pgsql": ("class Late extends PDO { CONSTRUCT }", "$it->late(PGSQL, 'postgres');", "pgsql"),
    "pdo_sqlite": ("class Late extends PDO { CONSTRUCT }", "$it->late('sqlite:' . __DIR__ . '/a.sqlite');", "pdo_sqlite"),
    "sqlite3": ("class Late extends SQLite3 { CONSTRUCT }", "$it->late(__DIR__ . '/a.sqlite');", "sqlite3"),
}
CONSTRUCT = "public function __construct() {} public function late(mixed ...$arguments): void { parent::__construct(...$arguments); }"
LOCKS = {
    "mysqli": "echo $it->query(\"SELECT get_lock('late', 9)\")->fetch_row()[0]; $it->begin_transaction();",
    "pdo": "echo $it->query(\"SELECT get_lock('late', 9)\")->fetchColumn(); $it->beginTransaction();",
    "pgsql": "$it->exec(\"SET lock_timeout = '9s'\"); $it->query('SELECT pg_advisory_lock(1)'); $it->beginTransaction(); echo 1;",
    "pdo_sqlite": "$it->exec('PRAGMA busy_timeout = 0'); try { $it->exec('BEGIN IMMEDIATE'); echo 1; } catch (PDOException) { echo 0; }",
    "sqlite3": "echo (int) @$it->exec('BEGIN IMMEDIATE');",
}


@pytest.fixture(scope="module")
def databases() -> Iterator[Databases]:
    with MariaDB() as mariadb, PostgreSQL() as postgresql:
        yield (mariadb, postgresql), {
            "SOCKET": str(mariadb.socket),
            "DATABASE": mariadb.database,
            "USER": mariadb.user,
            "PASSWORD": mariadb.password,
            "PGSQL": f"pgsql:host={postgresql.dir};port={postgresql.port};dbname=postgres",
        }


def script(kind: str, ends: str, constants: dict[str, str]) -> str:
    boot, connects, locks = KINDS[kind]
    boot = boot.replace("CONSTRUCT", CONSTRUCT) + ("" if "$it" in boot else " $it = new Late();")
    defines = " ".join(f"const {name} = '{value}';" for name, value in constants.items())
    return (
        f"{defines} {boot} $all = new stdClass(); $all->it = $it; unset($it);\n"
        f"while (hayate_handle_request(function () use ($all) {{ $it = $all->it; {connects} {LOCKS[locks]} {ends} }})) {{}}"
    )


def aborted(servers: tuple[MariaDB, PostgreSQL], kind: str) -> list[int]:
    """Connections that ended without a goodbye; PostgreSQL counts them a moment later."""
    mariadb, postgresql = servers
    if kind == "pdo_pgsql":
        time.sleep(1.2)
    abandoned = postgresql.sql("SELECT sessions_abandoned FROM pg_stat_database WHERE datname = 'postgres'")
    return [int(mariadb.sql("SHOW GLOBAL STATUS LIKE 'Aborted_clients'").split()[-1]), int(re.findall(r"\d+", abandoned)[0])]


@pytest.mark.parametrize("rewind", ["on", "fork"])
@pytest.mark.parametrize("kind", KINDS)
def test_its_locks_are_free_with_the_answer(
    kind: str, rewind: str, directory: pathlib.Path, databases: Databases
) -> None:
    servers, constants = databases
    directory.chmod(0o777)
    modes.write(directory, script(kind, "", constants))
    before = aborted(servers, kind)
    with modes.hayate(directory, rewind, "shared", workers=2, args=("--rewind-verify", "1"), user="www-data" if ROOT else None) as server:
        answers = [modes.get(server) for _ in range(100)]
        assert answers.count("1") == len(answers), answers
        assert modes.application(server)["restarts"] == {}
    assert aborted(servers, kind) == before


@pytest.mark.parametrize("ends", ["$it = null; $all->it = null;", "exit;", "throw new Exception();", "$GLOBALS['own'] = $it; $all->it = null;"])
@pytest.mark.parametrize("kind", ["mysqli_init", "pdo", "sqlite3"])
def test_however_the_request_ends(kind: str, ends: str, directory: pathlib.Path, databases: Databases) -> None:
    servers, constants = databases
    directory.chmod(0o777)
    modes.write(directory, f"ini_set('display_errors', '0'); http_response_code(200); {script(kind, ends, constants)}")
    before = aborted(servers, kind)
    with modes.hayate(directory, "on", "shared", workers=2, args=("--rewind-verify", "1"), user="www-data" if ROOT else None) as server:
        for _ in range(20):
            assert modes.requests.get(server.url, timeout=60).text.startswith("1")
        assert modes.application(server)["restarts"] == {}
    assert aborted(servers, kind) == before


#: What a worker's start connects is there for its requests, as what the boot does.
START = """
hayate_on_worker_start(function () use ($all) { $it = $all->it; CONNECTS });
while (hayate_handle_request(function () use ($all) { ANSWERS })) {}
"""


def test_what_a_workers_start_connects_stays(directory: pathlib.Path) -> None:
    directory.chmod(0o777)
    (boot, connects, _) = KINDS["sqlite3"]
    construct = "public function __construct() {} public function late($file) { parent::__construct($file); $this->exec('CREATE TEMP TABLE own (a)'); }"
    start = START.replace("CONNECTS", connects).replace("ANSWERS", "echo getmypid(), $all->it->querySingle('SELECT COUNT(*) FROM own');")
    modes.write(directory, f"{boot.replace('CONSTRUCT', construct)} $all = new stdClass(); $all->it = new Late(); {start}")
    with modes.hayate(directory, "on", "shared", workers=1, args=("--rewind-verify", "1"), user="www-data" if ROOT else None) as server:
        assert len({modes.get(server) for _ in range(5)}) == 1
        assert modes.application(server)["restarts"] == {}
