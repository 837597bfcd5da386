"""Databases: MariaDB, PostgreSQL, SQLite and Redis, the connection opened in the request, as a persistent one, at boot.

Whatever a request leaves on its connection (a transaction, locks, temporary tables, settings, unread rows), the next
one does not meet it, and what was committed is there. docs/databases.md says what each case costs.
"""

from __future__ import annotations

import collections
import json
import pathlib
import random
import shutil
import threading
from collections.abc import Iterator

import pytest
import requests
from lib.process import temporary_directory, wait_until
from lib.servers import Hayate

from .databases_site import KINDS, ROWS, SERVERS, Database, hayate, word
from .matrix_site import USER
from .world import World

CLIENTS = 4
LEAVING = ("leave", "leave&end=exit", "leave&end=fatal", "leave&end=throw")
STATUS = {"leave&end=fatal": 500, "leave&end=throw": 500}


@pytest.fixture(scope="module", params=KINDS)
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    with SERVERS[request.param]() as running:
        yield running


class Visitors:
    """Clients that ask at random, and what was wrong with the answers."""

    def __init__(self, url: str, number: int) -> None:
        self.url = url
        self.faults: collections.Counter[str] = collections.Counter()
        self.wrote = 0
        #: Numbers of the connections that requests had.
        self.connections: set[int] = set()
        self._clean: dict | None = None
        self._lock = threading.Lock()
        share = number // CLIENTS
        threads = [threading.Thread(target=self._run, args=(share,)) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _run(self, requests_to_make: int) -> None:
        chance = random.Random()
        session = requests.Session()
        for _ in range(requests_to_make):
            n = chance.randint(1, ROWS)
            what = chance.choice([f"read&n={n}", "look", "write", "nothing", chance.choice(LEAVING)])
            try:
                response = session.get(f"{self.url}/?do={what}", timeout=60)
            except requests.RequestException as error:
                self.faults[f"{what}: {error!r}"] += 1
                continue
            with self._lock:
                self._judge(what, n, response)

    def _judge(self, what: str, n: int, response: requests.Response) -> None:
        if response.status_code != STATUS.get(what, 200):
            self.faults[f"{what.split('&n=')[0]}: {response.status_code} {response.text[:200]}"] += 1
        elif what == "look":
            seen = json.loads(response.text)
            self.connections.add(seen.pop("number"))
            self._clean = self._clean or seen
            if seen != self._clean:
                self.faults[f"look: {seen} in place of {self._clean}"] += 1
        elif what == "write":
            self.wrote += 1
        elif what.startswith("read") and response.text != word(n):
            self.faults[f"{what}: {response.text[:200]}"] += 1


@pytest.mark.parametrize("opened", ["request", "persistent"])
def test_opened_by_the_request(database: Database, opened: str) -> None:
    """A request's connection is closed after it, politely, whether persistent or not: the next one has its own."""
    before, aborted = database.written(), database.aborted()
    with hayate(database, opened, args=("--rewind", "on", "--rewind-verify", "10")) as server:
        visitors = Visitors(server.url, 240)
        assert not visitors.faults, visitors.faults.most_common(5)
        assert wait_until(lambda: database.connections() == 0), f"{database.connections()} connections are left"
        (app,) = server.status()["apps"]
        assert app["restarts"] == {} and app["fallback"] is None
    shutil.rmtree(server.root)
    assert database.written() == before + visitors.wrote
    assert database.aborted() == aborted
    if database.kind != "sqlite":
        assert len(visitors.connections) > 20, "connections were kept"


def test_opened_at_boot(database: Database) -> None:
    """A request that uses the boot's connection is answered, and its worker replaced."""
    before = database.written()
    with hayate(database, "boot") as server:
        visitors = Visitors(server.url, 80)
        assert not visitors.faults, visitors.faults.most_common(5)
        (app,) = server.status()["apps"]
        print(app["restarts"], app["fallback"])
    shutil.rmtree(server.root)
    assert wait_until(lambda: database.connections() == 0)
    assert database.written() == before + visitors.wrote
    if database.kind == "sqlite":
        return
    # A fork would share the connection, and there is no front controller that classic mode could run.
    assert app["restarts"].get("rewind_connection", 0) >= 8 and app["fallback"] is None, app


@pytest.mark.parametrize("opened", ["boot", "start"])
def test_warm(database: Database, opened: str) -> None:
    """A connection of the boot, or of hayate_on_worker_start(), is kept, and its server forgets what requests leave."""
    if database.kind == "sqlite":
        return  # no server that remembers
    before = database.written()
    warm = ("--rewind", "on", "--rewind-verify", "1", "--connections", "warm")
    with hayate(database, opened, args=warm) as server:
        visitors = Visitors(server.url, 240)
        assert not visitors.faults, visitors.faults.most_common(5)
        (app,) = server.status()["apps"]
        assert app["restarts"] == {} and app["fallback"] is None
        assert app["rewind"]["warm"] == CLIENTS and app["rewind"]["resets"] > 100
        assert len(visitors.connections) <= CLIENTS
        assert app["boot"] == ("shared" if opened == "start" else "private")
    shutil.rmtree(server.root)
    assert wait_until(lambda: database.connections() == 0)
    assert database.written() == before + visitors.wrote


@pytest.mark.parametrize("database", ["pgsql"], indirect=True)
def test_a_seed_is_its_requests_own(database: Database) -> None:
    """setseed() of one visitor does not decide the random() of the next one: DISCARD ALL leaves it."""
    with hayate(database, "start", workers=1, args=("--rewind", "on", "--rewind-verify", "1", "--connections", "warm")) as server:

        def draw(what: str) -> list[str]:
            answer = requests.get(f"{server.url}/?do={what}", timeout=60)
            assert answer.status_code == 200, answer.text
            return answer.json()

        rounds = [(draw("seed"), draw("random"), draw("random")) for _ in range(6)]
        (app,) = server.status()["apps"]
        assert app["restarts"] == {} and app["rewind"]["warm"] == 1
    shutil.rmtree(server.root)
    seeded = [drawn for drawn, _, _ in rounds]
    assert seeded == [seeded[0]] * 6, "a seed decides what its own request draws"
    others = [number for _, one, two in rounds for number in one + two]
    assert len(set(others)) == 12, others


def test_opened_at_boot_and_not_used(database: Database) -> None:
    """A connection that requests leave alone costs nothing."""
    with hayate(database, "boot") as server:
        for _ in range(100):
            assert requests.get(server.url, timeout=60).text == "nothing"
        (app,) = server.status()["apps"]
    shutil.rmtree(server.root)
    assert app["restarts"] == {} and app["fallback"] is None and app["rewind"]["rewinds"] >= 95, app


def test_with_state_kept_connections_leak(database: Database) -> None:
    """The test can fail: without rewinding a request meets what another has left on the connection."""
    with hayate(database, "request", workers=1, args=("--rewind", "off")) as server:
        before = requests.get(f"{server.url}/?do=look", timeout=60).json()
        assert requests.get(f"{server.url}/?do=leave", timeout=60).text == "left"
        # In a MULTI a Redis connection answers no question.
        after = requests.get(f"{server.url}/?do=look", timeout=60)
    shutil.rmtree(server.root)
    assert after.status_code != 200 or after.json() != before


#: Parts of what the log says of connections that cannot be put back (databases/declined.php), and of how many.
DECLINED = {
    '"SET @x = 1", which cannot be repeated': 1,
    '"CREATE TEMPORARY TABLE t (n INT)", which cannot be repeated': 2,
    "\"SELECT GET_LOCK('a', 0)\", which cannot be repeated": 1,
    '"SELECT 1; SELECT 2", which cannot be repeated': 1,
    '"LISTEN x", which cannot be repeated': 1,
    '"SELECT pg_advisory_lock(1)", which cannot be repeated': 1,
    "a statement was prepared on it before the snapshot, and not closed": 1,
    "no database is selected on it": 1,
    "it is compressed": 1,
    "(MySQL) that a worker has opened as it started is not kept from request to request: its server does not say how it is, or a transaction is open": 1,
    "it is in the middle of an exchange, or a transaction is open on it": 1,
    "it was told the command MULTI, which cannot be repeated": 1,
}


def test_which_connections_are_kept(world: World) -> None:
    """Those that are known how they are, with the settings that they were given; of the others the log says why not."""
    directory = temporary_directory("declined")
    shutil.copy(pathlib.Path(__file__).parent / "databases/declined.php", directory / "worker.php")
    env = {"MARIADB": world.mariadb.socket, "POSTGRESQL": world.postgresql.port, "REDIS": world.redis.socket}
    flags = [flag for name, value in env.items() for flag in ("--env", f"{name}={value}")]
    args = [*flags, "--rewind", "on", "--rewind-verify", "1", "--connections", "warm"]
    with Hayate(directory, worker=directory / "worker.php", workers=1, args=args, user=USER) as server:
        assert wait_until(lambda: server.status()["apps"][0]["rewind"]["warm"] == 3), server.log()

        def is_told() -> bool:  # by another way than the numbers of the status
            log = server.log()
            return {why: log.count(why) for why in DECLINED} == DECLINED and log.count("is not kept from request to request") == 13

        assert wait_until(is_told), server.log()
        for _ in range(3):
            seen = requests.get(server.url, timeout=60).json()
            assert seen == [77, "Asia/Tokyo public, pg_catalog Tokyo", "3", 0], server.log()
        assert server.status()["apps"][0]["restarts"] == {"connection_lost": 1}
    shutil.rmtree(directory)
