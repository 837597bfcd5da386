"""What the boot opened, and a request gives up, ends then: its transaction, its locks, its name at the server, as under php-fpm.

Doctrine's close(), Laravel's purge() and reconnect() come to that, and what asks anew would wait for itself. A connection costs its worker then;
files are opened again.
"""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import sqlite3
from collections.abc import Iterator

import pytest
import requests

from lib.process import temporary_directory
from lib.servers import Hayate, MariaDB, NginxFpm, Redis, Server

from . import modes
from .matrix_site import USER
from .postgresql import PostgreSQL

SITE = pathlib.Path(__file__).parent / "given_up"
DATABASES = ("pdo", "mysqli", "pdo_pgsql", "pgsql", "pdo_sqlite", "sqlite3")
KINDS = (*DATABASES, "redis", "file")
TABLE = "CREATE TABLE unique_names (name varchar(60) PRIMARY KEY)"
#: Where else than in the boot of a rewound worker what has files is opened. Of forks the boot keeps no connection, and no worker's start a file.
WAYS = {"pdo_sqlite": ["fork", "start"], "sqlite3": ["fork", "start"], "file": ["fork"]}


@pytest.fixture(scope="module")
def places() -> Iterator[dict[str, str]]:
    files = temporary_directory("given-up")
    files.chmod(0o777)
    try:
        with MariaDB() as mariadb, PostgreSQL() as postgresql, Redis() as redis:
            mariadb.sql(TABLE, mariadb.database)
            postgresql.sql(TABLE)
            yield {
                "SOCKET": str(mariadb.socket),
                "DATABASE": mariadb.database,
                "USER_NAME": mariadb.user,
                "PASSWORD": mariadb.password,
                "PGSQL": f"pgsql:host={postgresql.dir};port={postgresql.port};dbname=postgres",
                "PG": f"host={postgresql.dir} port={postgresql.port} dbname=postgres user=postgres",
                "REDIS": str(redis.port),
                "FILES": str(files),
            }
    finally:
        shutil.rmtree(files, ignore_errors=True)


@contextlib.contextmanager
def serve(mode: str, kind: str, places: dict[str, str]) -> Iterator[Server]:
    env = {**places, "KIND": kind, "START": "1" if mode == "start" else "0"}
    if mode == "php-fpm":
        fpm = {f"env[{name}]": f'"{value}"' for name, value in env.items()}
        with NginxFpm(SITE, index="worker.php", ini={**modes.INI, **modes.ONCE}, workers=1, fpm=fpm) as server:
            yield server
        return
    connections = "warm" if mode == "start" else "request"
    args = ["--rewind", "fork" if mode == "fork" else "on", "--rewind-verify", "1", "--warmup", "off", "--connections", connections]
    args += [flag for name, value in env.items() for flag in ("--env", f"{name}={value}")]
    with Hayate(SITE, worker=SITE / "worker.php", workers=1, ini=modes.INI, args=args, user=USER) as server:
        yield server


def fresh(places: dict[str, str]) -> None:
    """The files, anew for each server: locks of one are none of another's."""
    files = pathlib.Path(places["FILES"])
    for file in files.iterdir():
        file.unlink()
    with contextlib.closing(sqlite3.connect(files / "a.sqlite")) as database:
        database.execute(TABLE)
    (files / "a.sqlite").chmod(0o666)


def ask(server: Server, what: str, name: str) -> list:
    answer = requests.get(server.url + "/", params={"do": what, "name": name}, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_given_up_is_over(kind: str, places: dict[str, str]) -> None:
    played = {}
    for mode in ("php-fpm", "on", *WAYS.get(kind, ["start"])):
        fresh(places)
        with serve(mode, kind, places) as server:
            answers = [ask(server, what, f"{kind} {mode} {n}") for n in range(3) for what in ("give up", "nothing", "nothing")]
            if mode != "php-fpm":
                (app,) = server.status()["apps"]
                assert app["fallback"] is None
                assert set(app["restarts"]) <= {"rewind_connection", "rewind_descriptors", "connection_lost"}, app["restarts"]
        # How many rows there are is another matter for each server.
        played[mode] = [answer[:1] if kind in DATABASES and len(answer) == 2 and isinstance(answer[1], int) else answer for answer in answers]
    # PHP itself holds on to the last connection that pg_connect() has made.
    first = {"redis": "nobody", "pgsql": False}.get(kind, True)
    assert played["php-fpm"][0][0] == first, played["php-fpm"]
    for mode, answers in played.items():
        assert answers == played["php-fpm"], (mode, answers)


@pytest.mark.parametrize("kind", ["pdo_sqlite", "sqlite3"])
def test_a_statement_given_up_lets_go_of_the_database(kind: str, places: dict[str, str]) -> None:
    for mode in ("php-fpm", "on", "fork"):
        fresh(places)
        with serve(mode, kind, places) as server:
            assert [ask(server, "half", f"{mode} {n}") for n in range(2)] == [[True], [True]], mode


DESTRUCTORS = """<?php
class Tells { public function __construct(private string $who) {} public function __destruct() { echo "[$this->who]"; } }
trait TellsAsWell { public ?Tells $has = null; public function __destruct() { echo '[' . self::class . ']'; } }
class Database extends PDO { use TellsAsWell; }
class Log extends SplFileObject { use TellsAsWell; }
class Listing extends DirectoryIterator { use TellsAsWell; }
class Words extends MessageFormatter { use TellsAsWell; }
$first = new Tells('first');
$all = new stdClass();
$all->database = new Database('sqlite::memory:');
$all->log = new Log(__DIR__ . '/log', 'a');
$all->listing = new Listing(__DIR__);
$all->between = new Tells('between');
$all->words = new Words('en', '{0}');
$all->database->has = new Tells('of the database');
$global = new Log(__DIR__ . '/log', 'a');
$last = new Tells('last');
while (hayate_handle_request(function () use ($all): void {
    foreach (array_filter(explode(',', $_GET['gives_up'] ?? '')) as $one) {
        $weak = WeakReference::create($all->$one);
        $all->$one = null;
        echo $one, $weak->get() === null ? ' is gone ' : ' is there ';
    }
})) { /* until the server ends it */ }
"""


def test_destructors_come_when_php_calls_them() -> None:
    """Of classes that extend those whose objects have a connection or a file: at once, or with the others at the end."""
    names = ["database", "log", "listing", "words"]
    asked = ["", *names, ",".join(names), ""]
    played = {}
    for mode in ("php-fpm", "on", "fork"):
        root = temporary_directory("destructors")
        root.chmod(0o777)
        script = root / "worker.php"
        script.write_text(DESTRUCTORS)
        try:
            if mode == "php-fpm":
                server: Server = NginxFpm(root, index="worker.php", ini={**modes.INI, **modes.ONCE}, workers=1)
            else:
                args = ["--rewind", mode, "--rewind-verify", "1", "--warmup", "off"]
                server = Hayate(root, worker=script, workers=1, ini=modes.INI, args=args, user=USER)
            with server:
                played[mode] = [requests.get(server.url + "/", params={"gives_up": what}, timeout=60).text for what in asked]
        finally:
            shutil.rmtree(root)
    assert "[of the database]" in played["php-fpm"][0]
    assert played["on"] == played["fork"] == played["php-fpm"]



#: Of these the end of a request calls destructors in the order in which they were made.
AT_ONCE = """<?php
trait Tells { public function __destruct() { echo '[' . self::class . ']'; } }
class Lite extends SQLite3 { use Tells; }
class Reader extends XMLReader { use Tells; }
class Connection extends mysqli { use Tells; }
$lite = new Lite(':memory:');
$all = [$lite, $lite->prepare('SELECT 1'), Reader::XML('<a/>'), new Connection()];
unset($lite);
while (hayate_handle_request(function () use (&$all): void {
    for ($i = count($all); $i-- > 0;) { $all[$i] = null; echo $i; }
})) { /* until the server ends it */ }
"""


def test_what_others_point_to_is_destroyed_at_once_as_well() -> None:
    played = {}
    for mode in ("php-fpm", "on", "fork"):
        root = temporary_directory("at-once")
        root.chmod(0o755)
        (root / "worker.php").write_text(AT_ONCE)
        try:
            if mode == "php-fpm":
                server: Server = NginxFpm(root, index="worker.php", ini={**modes.INI, **modes.ONCE}, workers=1)
            else:
                args = ["--rewind", mode, "--rewind-verify", "1", "--warmup", "off"]
                server = Hayate(root, worker=root / "worker.php", workers=1, ini=modes.INI, args=args, user=USER)
            with server:
                played[mode] = [requests.get(server.url, timeout=60).text for _ in range(3)]
        finally:
            shutil.rmtree(root)
    assert played["on"] == played["fork"] == played["php-fpm"]

BOOTS = {
    "in a function": "function main(): void { [$own, $handler] = made(); unset($own); while (hayate_handle_request($handler)) {} } main();",
    "held by a destructor": "function main(): void { [$own, $handler] = made(); $ends = new Ends($own); while (hayate_handle_request($handler)) {} } main();",
    "held by the handler alone": "while (hayate_handle_request(made()[1])) {}",
    "held by the handler's method": "while (hayate_handle_request((new Ends(made()[0]))->handle(...))) {}",
}
MADE = """<?php
class Ends {
    public function __construct(private array $own) {}
    public function __destruct() {}
    public function handle(): void { echo getmypid(); }
}
function made(): array {
    $redis = new Redis();
    $redis->connect('127.0.0.1', (int) getenv('REDIS'));
    $own = [$redis, new PDO('sqlite:' . getenv('FILES') . '/a.sqlite'), new SplFileObject(getenv('FILES') . '/a.lock', 'a')];
    return [$own, function () use ($own): void { echo getmypid(); }];
}
"""


@pytest.mark.parametrize("end", ["", "exit;", "throw new Exception();"])
@pytest.mark.parametrize("boot", BOOTS)
def test_the_end_of_a_request_gives_nothing_up(boot: str, end: str, places: dict[str, str]) -> None:
    """Wherever the boot has put it, and whoever lets go of it there: the worker goes on."""
    fresh(places)
    root = temporary_directory("ends")
    root.chmod(0o755)
    (root / "worker.php").write_text((MADE + BOOTS[boot]).replace("echo getmypid();", f"echo getmypid(); {end}"))
    env = [flag for name, value in places.items() for flag in ("--env", f"{name}={value}")]
    try:
        args = [*env, "--rewind", "on", "--rewind-verify", "1", "--warmup", "off"]
        with Hayate(root, worker=root / "worker.php", workers=1, ini={**modes.INI, "display_errors": "0"}, args=args, user=USER) as server:
            pids = {requests.get(server.url, timeout=60).text for _ in range(5)}
            (app,) = server.status()["apps"]
            assert (len(pids), app["restarts"], app["fallback"]) == (1, {}, None), server.log()
    finally:
        shutil.rmtree(root)
