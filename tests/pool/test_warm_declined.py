"""`connections = "warm"` and connections that cannot be kept: no request finds one, and so none costs its worker."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest
import requests

from lib.process import wait_until
from lib.servers import Hayate, MariaDB, Redis
from lib.tls import self_signed
from rewind.postgresql import PostgreSQL

WARM = ["--rewind", "on", "--connections", "warm", "--warmup", "off"]
SCRIPT = """<?php
final class Open {
    static ?PDO $database = null;
    static ?Redis $redis = null;
    static array $others = [];
    static function database(): PDO {
        if (!self::$database) { $made = CONNECT; $made->query('SELECT 1')->fetchAll(); self::$database = $made; }
        return self::$database;
    }
    static function redis(): Redis {
        if (!self::$redis) { $made = new Redis; $made->connect('127.0.0.1', REDIS); $made->ping(); self::$redis = $made; }
        return self::$redis;
    }
}
STEPS
while (hayate_handle_request(function () {
    if (isset($_GET['die'])) posix_kill(getmypid(), 9);
    echo Open::database()->query('SELECT 1')->fetchColumn(), ' ', Open::redis()->rawCommand('CLIENT', 'ID') > 0 ? 'redis' : '';
})) {
}
"""
DATABASE, CACHE = "Open::database();", "Open::redis();"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> tuple[pathlib.Path, pathlib.Path]:
    return self_signed(tmp_path_factory.mktemp("tls"), "database", ["localhost"], addresses=["127.0.0.1"])


@pytest.fixture(scope="module")
def postgresql(certificate) -> Iterator[PostgreSQL]:
    with PostgreSQL(certificate) as server:
        yield server


@pytest.fixture(scope="module")
def mariadb(certificate) -> Iterator[MariaDB]:
    with MariaDB([f"--ssl-cert={certificate[0]}", f"--ssl-key={certificate[1]}"]) as server:
        yield server


@pytest.fixture(scope="module")
def redis() -> Iterator[Redis]:
    with Redis() as server:
        yield server


def serve(directory: pathlib.Path, connect: str, redis: Redis, *steps: str, workers: int = 2) -> Hayate:
    directory.chmod(0o755)
    text = "".join(f"hayate_on_worker_start(function () {{ {step} }});\n" for step in steps)
    (directory / "worker.php").write_text(SCRIPT.replace("CONNECT", connect).replace("REDIS", str(redis.port)).replace("STEPS", text))
    return Hayate(directory, worker=directory / "worker.php", workers=workers, args=WARM)


def costs_no_worker(server: Hayate, kept: int, why: str, told: int = 1) -> None:
    """Each of the workers is replaced once, at most, before it serves; and so is one that comes later."""
    for _ in range(30):
        assert requests.get(server.url, timeout=60).text == "1 redis", server.log_tail()
    assert wait_until(lambda: server.status()["apps"][0]["rewind"]["warm"] == kept), server.log_tail()
    (app,) = server.status()["apps"]
    assert set(app["restarts"]) == {"connection_lost"} and app["restarts"]["connection_lost"] <= 2, (app, server.log_tail())
    assert app["fallback"] is None
    requests.get(server.url + "/?die=1", timeout=60)
    for _ in range(10):
        assert requests.get(server.url, timeout=60).text == "1 redis"
    assert wait_until(lambda: server.status()["apps"][0]["rewind"]["warm"] == kept), server.log_tail()
    (after,) = server.status()["apps"]
    assert after["restarts"] == {**app["restarts"], "signal_9": 1}, server.log_tail()
    log = server.log()
    assert log.count("is not kept from request to request") == log.count(why) == told and "requests open their own" in log, log


def pgsql(server: PostgreSQL, more: str = "") -> str:
    return f"new PDO('pgsql:host=127.0.0.1;port={server.port};dbname=postgres{more}', 'postgres')"


@pytest.mark.parametrize("steps", [(DATABASE, CACHE), (DATABASE + CACHE,), (DATABASE,)], ids=["two steps", "one step of two", "alone"])
def test_postgresql_over_tls(tmp_path, postgresql: PostgreSQL, redis: Redis, steps) -> None:
    """Each request that asked cost its worker: the step had left the connection where requests look for it."""
    with serve(tmp_path, pgsql(postgresql, ";sslmode=prefer"), redis, *steps) as server:
        costs_no_worker(server, 2 if len(steps) == 2 else 0, "it is encrypted (TLS)")


MYSQL = {
    "tls": ("dbname=hayate", "'hayate', 'hayate', [PDO::MYSQL_ATTR_SSL_CA => 'AUTHORITY', PDO::MYSQL_ATTR_SSL_VERIFY_SERVER_CERT => false]", "it is encrypted (TLS)"),
    "compressed": ("dbname=hayate", "'hayate', 'hayate', [PDO::MYSQL_ATTR_COMPRESS => true]", "it is compressed"),
    "no database": ("", "'hayate', 'hayate'", "no database is selected"),
    "a variable": ("dbname=hayate", "'hayate', 'hayate', [PDO::MYSQL_ATTR_INIT_COMMAND => 'SET @x = 1']", "cannot be repeated"),
}


@pytest.mark.parametrize("case", MYSQL.values(), ids=MYSQL)
def test_mariadb(tmp_path, mariadb: MariaDB, redis: Redis, certificate, case: tuple[str, str, str]) -> None:
    name, given, why = case
    connect = f"new PDO('mysql:host=127.0.0.1;port={mariadb.port};{name}', {given})".replace("AUTHORITY", str(certificate[0]))
    with serve(tmp_path, connect, redis, CACHE, DATABASE) as server:
        costs_no_worker(server, 2, why)


def test_a_server_that_runs_something_for_each_client(tmp_path, mariadb: MariaDB, redis: Redis) -> None:
    connect = f"new PDO('mysql:host=127.0.0.1;port={mariadb.port};dbname=hayate', 'hayate', 'hayate')"
    mariadb.sql("SET GLOBAL init_connect = 'SET max_statement_time = 7'")
    try:
        with serve(tmp_path, connect, redis, CACHE, DATABASE) as server:
            costs_no_worker(server, 2, "init_connect")
    finally:
        mariadb.sql("SET GLOBAL init_connect = ''")


def test_what_the_boot_opens_is_the_boots(tmp_path, postgresql: PostgreSQL, redis: Redis) -> None:
    """A step that uses it is not left out for it: it is there without the step as well."""
    with serve(tmp_path, pgsql(postgresql), redis, DATABASE + CACHE) as server:
        script = tmp_path / "worker.php"
        script.write_text(script.read_text().replace("hayate_on_worker_start", "Open::database();\nhayate_on_worker_start", 1))
        server.reload()
        assert wait_until(lambda: server.status()["apps"][0]["rewind"]["warm"] == 2), server.log_tail()
        assert server.logged("that the boot opened is not kept from request to request: it is encrypted (TLS)")


@pytest.mark.parametrize("kind", ["mariadb", "postgresql"])
def test_a_server_that_leaves_at_once_may_come_back(tmp_path, mariadb: MariaDB, postgresql: PostgreSQL, redis: Redis, kind: str) -> None:
    """What was closed by the time a worker is ready is no reason to do without for good. PostgreSQL says so before it closes."""
    number, kill, connect = {
        "mariadb": ("CONNECTION_ID()", "KILL $n", f"new PDO('mysql:host=127.0.0.1;port={mariadb.port};dbname=hayate', 'hayate', 'hayate')"),
        "postgresql": ("pg_backend_pid()", "SELECT pg_terminate_backend($n)", pgsql(postgresql, ";sslmode=disable")),
    }[kind]
    closes = f"""Open::database(); if (is_file('{tmp_path}/away')) {{
        $n = Open::database()->query('SELECT {number}')->fetchColumn(); ({connect})->exec("{kill}"); usleep(300000); }}"""
    (tmp_path / "away").touch()
    with serve(tmp_path, connect, redis, closes, workers=1) as server:
        (tmp_path / "away").unlink()
        for _ in range(10):
            assert requests.get(server.url, timeout=60).text == "1 redis"
        assert server.logged("was left by its server at once")
        assert wait_until(lambda: server.status()["apps"][0]["rewind"]["warm"] == 1, 40), server.log_tail()
