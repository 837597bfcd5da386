"""Warm connections to MariaDB: whatever a request does to its connection, the next one finds it as a fresh one is.

One worker, so that the next request has the same connection, or that of the worker that took its place; all memory is
compared after each request. What cannot be put back costs the worker, and no request sees it.
"""

from __future__ import annotations

import os
import pathlib
import random
import shutil
import threading
from collections.abc import Iterator, Sequence

import pytest
import requests
from lib.process import temporary_directory, wait_until
from lib.servers import Hayate, MariaDB

from .databases_site import TABLES
from .matrix_site import USER

CLIENTS = ("pdo", "mysqli")
#: Of the random visitors; HAYATE_WARM_REQUESTS for a longer run.
REQUESTS = int(os.environ.get("HAYATE_WARM_REQUESTS", "200"))
ENDS = ("", "&end=exit", "&end=fatal", "&end=throw")
WARM = ("--rewind", "on", "--connections", "warm", "--rewind-verify", "1")
#: What leaves the connection in the middle of something, or somebody else's, so that it costs the worker.
COSTLY = {"hidden role", "hidden database", "hidden profiling", "hidden in code", "half of 256 packets", "unbuffered", "several", "kill", "async", "close", "drop", "user"}


@pytest.fixture(scope="module")
def database() -> Iterator[MariaDB]:
    with MariaDB() as server:
        server.sql("CREATE DATABASE other")
        for name in (server.database, "other"):
            for statement in TABLES:
                server.sql(statement, name)
        server.sql("CREATE ROLE leaker; GRANT leaker TO 'hayate'@'localhost'")
        server.sql(
            "DELIMITER //\nCREATE FUNCTION other_role() RETURNS int SQL SECURITY INVOKER BEGIN SET ROLE leaker; RETURN 1; END//",
            server.database,
        )
        server.sql("CREATE USER 'second'@'localhost' IDENTIFIED BY 'second'")
        yield server


def serve(database: MariaDB, client: str, *, warm: bool = True, workers: int = 1, args: Sequence[str] = WARM) -> Hayate:
    env = {
        "CLIENT": client,
        "SOCKET": database.socket,
        "DATABASE": database.database,
        "USER_NAME": database.user,
        "PASSWORD": database.password,
        "WARM": "1" if warm else "0",
    }
    flags = [flag for name, value in env.items() for flag in ("--env", f"{name}={value}")]
    directory = temporary_directory("warm")
    shutil.copy(pathlib.Path(__file__).parent / "databases/warm.php", directory / "worker.php")
    ini = {"mysqli.allow_local_infile": "1", "ffi.enable": "1"}
    return Hayate(directory, worker=directory / "worker.php", workers=workers, ini=ini, user=USER, args=(*flags, *args))


def get(server: Hayate, what: str) -> requests.Response:
    return requests.get(f"{server.url}/?do={what}", timeout=60)


def look(server: Hayate) -> dict:
    response = get(server, "look")
    assert response.status_code == 200, response.text
    return response.json()


def restarts(server: Hayate) -> dict:
    (app,) = server.status()["apps"]
    assert app["fallback"] is None
    return app["restarts"]


@pytest.fixture(scope="module", params=CLIENTS)
def fresh(database: MariaDB, request: pytest.FixtureRequest) -> Iterator[tuple[str, dict]]:
    """What a connection of the request's own shows, but for its number."""
    with serve(database, request.param, warm=False, args=("--rewind", "on")) as server:
        seen = look(server)
    shutil.rmtree(server.root)
    seen.pop("number")
    yield request.param, seen


def test_each_way_to_leave_a_connection(database: MariaDB, fresh: tuple[str, dict]) -> None:
    client, expected = fresh
    with serve(database, client) as server:
        first = look(server)
        assert look(server)["number"] == first["number"], "the connection was not kept"
        for way in get(server, "ways").json():
            before = sum(restarts(server).values())
            for end in ENDS:
                answer = get(server, way + end)
                assert answer.status_code == (500 if end in ("&end=fatal", "&end=throw") else 200), (way, answer.text)
                assert answer.text.startswith("done"), (way, end, answer.text)
                for _ in range(2):
                    seen = look(server)
                    seen.pop("number")
                    assert seen == expected, (way, end)
            if way not in COSTLY:
                assert sum(restarts(server).values()) == before, (way, restarts(server))
        assert set(restarts(server)) <= {"rewind_connection", "connection_lost"}
    shutil.rmtree(server.root)


PREPARES = """CREATE OR REPLACE PROCEDURE prepares()
BEGIN XA START 'leak'; INSERT INTO written VALUES ('not committed'); XA END 'leak'; XA PREPARE 'leak'; END"""


@pytest.mark.parametrize("way", ["xa prepared", "xa prepared by a procedure", "xa put together", "xa put together of two"])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_transaction_that_is_prepared_costs_the_connection(database: MariaDB, client: str, way: str) -> None:
    """MariaDB's reset leaves the session with it: each statement failed from then on."""
    with serve(database, client) as server:
        database.sql(f"DELIMITER //\n{PREPARES}//\nDELIMITER ;", database.database)
        before = look(server)
        assert get(server, way).text == "done"
        seen = [look(server) for _ in range(3)]
        database.sql("XA ROLLBACK 'leak'")
        assert [{**one, "number": 0} for one in seen] == [{**before, "number": 0}] * 3
        assert seen[0]["number"] != before["number"] and set(restarts(server)) <= {"rewind_connection"}
    shutil.rmtree(server.root)


def test_random_numbers_of_the_server_are_nobodys_choice(database: MariaDB) -> None:
    """RAND() goes on over a reset: its seeds are drawn anew, also after what makes the long form necessary, and before the first request."""
    with serve(database, "pdo") as server:
        number = look(server)["number"]
        drawn = []
        for way in ("nothing", "variables", "use", "role"):
            for _ in range(3):
                assert get(server, way).text == "done"
                drawn.append(get(server, "drawn").text)
                first, second = get(server, "random").json()
                assert 0 < first < second < 1e-6, "the seeds decide"
                drawn.append(get(server, "drawn").text)
        assert len(set(drawn)) == len(drawn) and not any(float(one) < 1e-6 for one in drawn), drawn
        assert look(server)["number"] == number
    shutil.rmtree(server.root)


def test_what_a_server_is_told(database: MariaDB) -> None:
    """A reset, the database and one SET after a request that only reads; more after one that may have changed database or role."""

    def counts() -> dict[str, int]:
        lines = database.sql("SHOW GLOBAL STATUS WHERE Variable_name IN ('Com_set_option', 'Com_change_db')").split()
        return dict(zip(lines[::2], map(int, lines[1::2])))

    with serve(database, "pdo", args=("--rewind", "on", "--connections", "warm")) as server:
        number = look(server)["number"]
        for way, databases in (("many", 1), ("transaction", 1), ("use", 2), ("role", 1)):
            before = counts()
            for _ in range(10):
                assert get(server, way).text == "done"

            def is_told(way: str = way, before: dict[str, int] = before, databases: int = databases) -> bool:
                changes, settings = (after - before[name] for name, after in counts().items())
                return changes == 10 * databases and (settings == 10 if way in ("many", "transaction") else settings > 10)

            # It is told after the answer, and may take its time.
            assert wait_until(is_told, 30), (way, before, counts())
        assert look(server)["number"] == number
    shutil.rmtree(server.root)


def test_a_server_that_runs_statements_for_each_connection(database: MariaDB) -> None:
    """A reset does not run them again: the connection is not kept, and the log says why."""
    database.sql("SET GLOBAL init_connect = 'SET max_statement_time = 7'")
    try:
        with serve(database, "pdo") as server:
            assert look(server)["number"] != look(server)["number"]
            assert "init_connect" in server.log()
            assert server.status()["apps"][0]["rewind"]["warm"] == 0
        shutil.rmtree(server.root)
    finally:
        database.sql("SET GLOBAL init_connect = ''")


def test_programs_of_a_request_have_no_connection(database: MariaDB) -> None:
    """What they say on it would not be seen, and what they keep they would hear."""
    with serve(database, "pdo") as server:
        number = look(server)["number"]
        listed = get(server, "inherited").text
        assert "/dev/null" in listed and "socket:" not in listed, listed
        assert look(server)["number"] == number and restarts(server) == {}
        # proc_open() forks in PHP 8.2. A child that runs no other program says nothing on it either.
        assert get(server, "forked").text == "0"
        assert get(server, "child").text == "nobody there 7"
        seen = look(server)
        assert (seen["number"], seen["variable"]) == (number, None) and restarts(server) == {}
    shutil.rmtree(server.root)


def test_a_child_after_the_connection_was_closed(database: MariaDB) -> None:
    """Another file may have its number, which the child must not lose."""
    with serve(database, "mysqli") as server:
        for _ in range(2):
            assert get(server, "closed").text == "through a child 0"
            assert get(server, "nothing").text == "done"
    shutil.rmtree(server.root)


def test_each_descriptor_of_a_connection(database: MariaDB) -> None:
    """Also the rewinder's copy: what a request says by it costs the worker, and a child says nothing at all."""
    with serve(database, "pdo") as server:
        number = look(server)["number"]
        for n in range(2):
            assert get(server, f"socket&child&n={n}").text == "2"
            seen = look(server)
            assert (seen["number"], seen["variable"]) == (number, None) and restarts(server) == {}
        for n in range(2):
            assert get(server, f"socket&n={n}").text == "2"
            seen = look(server)
            assert seen["number"] != number and seen["variable"] is None
            number = seen["number"]
    shutil.rmtree(server.root)


@pytest.mark.parametrize("workers", [4])
def test_many_visitors(database: MariaDB, fresh: tuple[str, dict], workers: int) -> None:
    """At random, on several workers: only some of the ways, for most requests of an application are no accident."""
    client, expected = fresh
    faults: list[str] = []
    with serve(database, client, workers=workers, args=(*WARM[:-1], "50")) as server:
        ways = [way for way in get(server, "ways").json() if way not in COSTLY | {"locks", "savepoint"}]

        def visit(share: int) -> None:
            chance = random.Random()
            session = requests.Session()
            for _ in range(share):
                what = chance.choice(["look", "look", chance.choice(ways) + chance.choice(ENDS)])
                answer = session.get(f"{server.url}/?do={what}", timeout=60)
                if what == "look":
                    seen = answer.json() if answer.status_code == 200 else {"number": 0, "answer": answer.text}
                    seen.pop("number")
                    if seen != expected:
                        faults.append(f"{seen}")

        threads = [threading.Thread(target=visit, args=(REQUESTS // workers,)) for _ in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not faults, faults[:3]
        assert restarts(server) == {}
    shutil.rmtree(server.root)


def test_closed_by_the_server(database: MariaDB) -> None:
    """KILL, and a time without questions: the worker that idles is replaced, and no request meets the dead end."""
    with serve(database, "pdo") as server:
        for _ in range(5):
            number = look(server)["number"]
            database.sql(f"KILL {number}")
            assert wait_until(lambda number=number: str(number) not in database.sql("SHOW PROCESSLIST").split())
            assert look(server)["number"] != number
        assert restarts(server).keys() == {"connection_lost"}
    shutil.rmtree(server.root)
    database.sql("SET GLOBAL wait_timeout = 1")
    try:
        with serve(database, "pdo") as server:
            assert wait_until(lambda: restarts(server).get("connection_lost", 0) > 0), restarts(server)
            for _ in range(20):
                look(server)
        shutil.rmtree(server.root)
    finally:
        database.sql("SET GLOBAL wait_timeout = 28800")


def test_restart_of_the_server(database: MariaDB) -> None:
    """Without a server the application answers as it likes; with it the connection is warm again after a while."""
    with serve(database, "pdo") as server:
        look(server)
        database.stop()
        assert wait_until(lambda: get(server, "look").status_code == 500)
        assert get(server, "nothing").text == "done"
        database.start()
        assert wait_until(lambda: get(server, "look").status_code == 200)
        assert wait_until(lambda: server.status()["apps"][0]["rewind"]["warm"] == 1)
        assert look(server)["number"] == look(server)["number"]
    shutil.rmtree(server.root)


def test_what_the_log_says_of_what_was_left(database: MariaDB) -> None:
    """What costs the worker, once, however often it does; not that connections should be opened in requests."""
    reasons = {
        "hidden profiling": "it said CALL, EXECUTE IMMEDIATE",
        "user": "it changed the user or an option of the connection",
        "async": "it did not read the answer to what it asked",
        "close": "was closed",
    }
    with serve(database, "mysqli") as server:
        for way, reason in reasons.items():
            for _ in range(2):
                before = sum(restarts(server).values())
                assert get(server, way).status_code == 200
                assert wait_until(lambda before=before: sum(restarts(server).values()) > before), way
            assert wait_until(lambda reason=reason: reason in server.log()), (way, server.log())
            assert server.log().count(reason) == 1, (way, server.log())
        assert set(restarts(server)) == {"rewind_connection"}
    shutil.rmtree(server.root)
