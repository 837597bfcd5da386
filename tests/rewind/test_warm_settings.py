"""Warm connections to servers whose settings somebody changes at run time.

A reset takes up the server's new settings, while the client's library has the memory of the snapshot, by which it quotes: a visitor's text could
become part of a statement. So such a connection is not kept, and what the next worker opens has the new settings at both ends.
"""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import requests
from lib.process import temporary_directory, wait_until
from lib.servers import Hayate, MariaDB

from .matrix_site import USER
from .postgresql import PostgreSQL

#: Ends the text early where backslashes count for one end and not for the other.
EVIL = "\\' UNION SELECT 'x', 'broken out' -- "


@dataclass
class Kind:
    server: MariaDB | PostgreSQL
    dsn: str
    user: str
    password: str = ""


@pytest.fixture(scope="module")
def mariadb() -> Iterator[Kind]:
    with MariaDB() as server:
        yield Kind(server, f"mysql:unix_socket={server.socket};dbname={server.database};charset=utf8mb4", server.user, server.password)


@pytest.fixture(scope="module")
def postgresql() -> Iterator[Kind]:
    with PostgreSQL() as server:
        yield Kind(server, f"pgsql:host={server.dir};port={server.port};dbname=postgres", "postgres")


def serve(kind: Kind, *args: str, more: int = 0, pgsql: str = "") -> Hayate:
    env = {"DSN": kind.dsn, "USER_NAME": kind.user, "PASSWORD": kind.password, "MORE": str(more), "PGSQL": pgsql}
    flags = [flag for name, value in env.items() for flag in ("--env", f"{name}={value}")]
    directory = temporary_directory("settings")
    shutil.copy(pathlib.Path(__file__).parent / "databases/settings.php", directory / "worker.php")
    warm = ("--rewind", "on", "--connections", "warm")
    return Hayate(directory, worker=directory / "worker.php", workers=1, user=USER, args=(*flags, *warm, *args))


def visit(server: Hayate, text: str = EVIL) -> int:
    """The number of the connection, on which the text was a text."""
    response = requests.get(server.url, params={"text": text}, timeout=60)
    assert response.status_code == 200, response.text
    number, read = response.json()
    assert read == text, response.text
    return number


def ask(server: Hayate, statement: str) -> str:
    return requests.get(server.url, params={"ask": statement}, timeout=60).json()


def is_replaced(server: Hayate, number: int) -> None:
    """By one that opens a connection of its own, which is kept."""
    assert wait_until(lambda: visit(server) != number), server.log()
    number = visit(server)
    assert visit(server) == number, "the new connection was not kept"
    (app,) = server.status()["apps"]
    assert set(app["restarts"]) == {"connection_lost"} and app["fallback"] is None
    assert "its server's settings have changed" in server.log()


#: What is changed, back, and what the server is asked for it.
MARIADB = {
    "replica": ("read_only = 1", "read_only = 0", "SELECT @@read_only", 1),
    "quoting": ("sql_mode = CONCAT(@@global.sql_mode, ',NO_BACKSLASH_ESCAPES')", "sql_mode = DEFAULT", "SELECT @@sql_mode LIKE '%NO_BACKSLASH%'", 1),
    "ansi": ("sql_mode = CONCAT(@@global.sql_mode, ',ANSI_QUOTES')", "sql_mode = DEFAULT", "SELECT @@sql_mode LIKE '%ANSI_QUOTES%'", 1),
    "isolation": ("tx_isolation = 'SERIALIZABLE'", "tx_isolation = DEFAULT", "SELECT @@tx_isolation", "SERIALIZABLE"),
    "time": ("time_zone = '+03:00'", "time_zone = DEFAULT", "SELECT @@time_zone", "+03:00"),
    "autocommit": ("autocommit = 0", "autocommit = 1", "SELECT @@autocommit", 0),
    "for each connection": ("init_connect = 'SET time_zone = \"+02:00\"'", "init_connect = ''", "SELECT 1", 1),
}


@pytest.mark.parametrize("what", MARIADB)
def test_set_global(mariadb: Kind, what: str) -> None:
    change, back, question, expected = MARIADB[what]
    with serve(mariadb) as server:
        number = visit(server)
        assert visit(server) == number, "the connection was not kept"
        mariadb.server.sql(f"SET GLOBAL {change}")
        try:
            if what == "for each connection":
                assert wait_until(lambda: visit(server) != number)
                assert "init_connect" in server.log()
            else:
                is_replaced(server, number)
            assert str(ask(server, question)) == str(expected)
        finally:
            mariadb.server.sql(f"SET GLOBAL {back}")
    shutil.rmtree(server.root)


def test_without_backslashes_from_the_start(mariadb: Kind) -> None:
    """What Hayate asks a server has no backslash either."""
    mariadb.server.sql("SET GLOBAL sql_mode = 'NO_BACKSLASH_ESCAPES'")
    try:
        with serve(mariadb) as server:
            number = visit(server)
            assert visit(server) == number and visit(server) == number, server.log()
            mariadb.server.sql("SET GLOBAL sql_mode = DEFAULT")
            is_replaced(server, number)
        shutil.rmtree(server.root)
    finally:
        mariadb.server.sql("SET GLOBAL sql_mode = DEFAULT")


#: Not client_encoding: an open session cannot take it from the configuration ("cannot change client_encoding now").
POSTGRESQL = {
    "quoting": ("standard_conforming_strings", "off"),
    "dates": ("datestyle", "SQL, DMY"),
    "time": ("timezone", "Asia/Tokyo"),
    "schemas": ("search_path", "pg_catalog"),
    "isolation": ("default_transaction_isolation", "serializable"),
}


@pytest.mark.parametrize("what", POSTGRESQL)
def test_reload(postgresql: Kind, what: str) -> None:
    """The server reads its configuration when the next statement has come: that statement is quoted by the old one."""
    name, value = POSTGRESQL[what]
    with serve(postgresql) as server:
        number = visit(server)
        assert visit(server) == number, "the connection was not kept"
        quoted = f"'{value}'" if what != "schemas" else value
        postgresql.server.sql(f"ALTER SYSTEM SET {name} = {quoted}")
        postgresql.server.sql("SELECT pg_reload_conf()")
        try:
            assert wait_until(lambda: postgresql.server.sql(f"SHOW {name}").strip() == value)
            is_replaced(server, number)
            assert ask(server, f"SELECT current_setting('{name}')") == value
        finally:
            postgresql.server.sql(f"ALTER SYSTEM RESET {name}")
            postgresql.server.sql("SELECT pg_reload_conf()")
            assert wait_until(lambda: postgresql.server.sql(f"SHOW {name}").strip() != value)
    shutil.rmtree(server.root)


def test_greatest_age(postgresql: Kind) -> None:
    """What a server looks at when a connection is opened comes into force with the next one; and nothing speaks against rewinding."""
    with serve(postgresql, "--connection-lifetime", "3s") as server:
        number = visit(server)
        assert visit(server) == number, "the connection was not kept"
        postgresql.server.sql("ALTER ROLE postgres SET lock_timeout = '77s'")
        try:
            assert wait_until(lambda: ask(server, "SHOW lock_timeout") == "77s")
            # A worker that nobody asks is replaced as well: no request waits for its successor.
            number = visit(server)
            before = server.status()["apps"][0]["restarts"]["connection_lifetime"]
            assert wait_until(lambda: server.status()["apps"][0]["restarts"]["connection_lifetime"] > before)
            assert wait_until(lambda: server.status()["apps"][0]["rewind"]["warm"] == 1)
            assert visit(server) != number
            (app,) = server.status()["apps"]
            assert set(app["restarts"]) == {"connection_lifetime"} and app["fallback"] is None
        finally:
            postgresql.server.sql("ALTER ROLE postgres RESET lock_timeout")
    shutil.rmtree(server.root)


def test_no_greatest_age(postgresql: Kind) -> None:
    with serve(postgresql, "--connection-lifetime", "off") as server:
        number = visit(server)
        time.sleep(3)
        assert visit(server) == number and server.status()["apps"][0]["restarts"] == {}
    shutil.rmtree(server.root)


def keep_alive_timers(port: int) -> list[str]:
    """Of connections to that port, as `ss` shows them; of those alone that are quiet."""
    listed = subprocess.run(["ss", "-tnoH", "state", "established", f"dport = :{port}"], capture_output=True, text=True, check=True, timeout=60).stdout
    return [word for word in listed.split() if word.startswith("timer:(keepalive")]


@pytest.mark.parametrize("kind", ["mariadb", "postgresql"])
def test_a_quiet_connection_is_kept_alive(request: pytest.FixtureRequest, kind: str) -> None:
    """What forwards TCP forgets one that is quiet; the system would ask after two hours."""
    over_tcp: Kind = request.getfixturevalue(kind)
    port = over_tcp.server.port
    name = "postgres;sslmode=disable" if kind == "postgresql" else over_tcp.server.database
    scheme = "pgsql" if kind == "postgresql" else "mysql"
    with serve(Kind(over_tcp.server, f"{scheme}:host=127.0.0.1;port={port};dbname={name}", over_tcp.user, over_tcp.password)) as server:
        number = visit(server)
        assert visit(server) == number, server.log()
        (timer,) = keep_alive_timers(port)
        assert re.match(r"timer:\(keepalive,(\d\d?sec|\d+ms|[\d.]+ms)", timer), timer
    shutil.rmtree(server.root)


def test_times_that_somebody_has_set(postgresql: Kind) -> None:
    port = postgresql.server.port
    dsn = f"pgsql:host=127.0.0.1;port={port};dbname=postgres;sslmode=disable;keepalives_idle=1000"
    with serve(Kind(postgresql.server, dsn, postgresql.user)) as server:
        number = visit(server)
        assert visit(server) == number, server.log()
        (timer,) = keep_alive_timers(port)
        assert timer.startswith("timer:(keepalive,16min"), timer
    shutil.rmtree(server.root)


def test_more_connections_than_are_kept(mariadb: Kind) -> None:
    with serve(mariadb, more=17) as server:
        number = visit(server)
        assert visit(server) == number, server.log()
        assert server.status()["apps"][0]["rewind"]["warm"] == 16
        assert server.log().count("is not kept from request to request: Hayate keeps 16 connections") == 2, server.log()
    shutil.rmtree(server.root)


def test_what_is_not_kept_is_said_once(mariadb: Kind) -> None:
    """Each worker would say the same."""
    with serve(mariadb, "--connection-lifetime", "1s", more=17) as server:
        assert wait_until(lambda: server.status()["apps"][0]["restarts"].get("connection_lifetime", 0) >= 3)
        assert wait_until(lambda: visit(server) > 0)
        assert server.log().count("is not kept from request to request") == 2, server.log()
    shutil.rmtree(server.root)


@pytest.mark.parametrize("looks", [0, 100], ids=["does not look", "looks whether its client is there"])
def test_a_query_that_is_sent_and_not_read(postgresql: Kind, looks: int) -> None:
    """As where pg_close() waits for it: what it wrote is there when the answer has ended. It costs the worker, as the request's doing."""
    server_of = postgresql.server
    server_of.sql("DROP TABLE IF EXISTS stored; CREATE TABLE stored (n INT)")
    server_of.sql(f"ALTER ROLE postgres SET client_connection_check_interval = {looks}")
    with serve(postgresql, pgsql=f"host={server_of.dir} port={server_of.port} dbname=postgres user=postgres") as server:
        for n in range(1, 4):
            sent = requests.get(server.url, params={"send": f"INSERT INTO stored SELECT {n} FROM pg_sleep(0.5)"}, timeout=60)
            assert sent.json() is True
            assert server_of.sql("SELECT count(*) FROM stored").strip() == str(n)
        assert wait_until(lambda: server.status()["apps"][0]["restarts"] == {"rewind_connection": 3}), server.status()["apps"][0]["restarts"]
        assert server.log().count("it left an answer unread (pg_send_query())") == 1, server.log()
    shutil.rmtree(server.root)
