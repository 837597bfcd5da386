"""A SQLite connection of the boot ends each request as one that the request had opened: what php-fpm stores is stored.

What a statement wrote that was not read to its end, transactions left open, and the locks that others meet meanwhile.
"""

from __future__ import annotations

import concurrent.futures
import pathlib
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
import requests

from lib.process import temporary_directory, wait_until
from lib.servers import Hayate, NginxFpm, Server

from . import modes

SITE = pathlib.Path(__file__).parent / "sqlite"
INI = {"display_errors": "1", "html_errors": "0", "log_errors": "0"}
STEPS = [
    ("order", ""),
    ("order", ""),
    ("in a transaction", ""),
    ("half read", ""),
    ("order", "exit"),
    ("committed", ""),
    ("own connection", ""),
    ("in a transaction", "error"),
    ("order", "error"),
    ("read", ""),
]


class Shop:
    def __init__(self, directory: pathlib.Path) -> None:
        self.file = directory / "shop.sqlite"
        directory.chmod(0o777)
        with closing(sqlite3.connect(self.file)) as db, db:
            db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT)")
            db.execute("INSERT INTO orders (name) VALUES ('first'), ('second')")
        self.file.chmod(0o666)

    def orders(self) -> list[str]:
        """As another process sees them, which can write, too."""
        with closing(sqlite3.connect(self.file, timeout=0)) as db, db:
            db.execute("UPDATE orders SET name = name")
            return [name for (name,) in db.execute("SELECT name FROM orders ORDER BY id")]


@contextmanager
def shop(mode: str, workers: int = 2, **env: str) -> Iterator[tuple[Server, Shop]]:
    directory = temporary_directory("sqlite")
    try:
        it = Shop(directory)
        env = {"FILE": str(it.file), "API": "pdo", "JOURNAL": "delete", **env}
        if mode == "fpm":
            fpm = {f"env[{name}]": value for name, value in env.items()}
            server: Server = NginxFpm(SITE, index="worker.php", ini={**INI, **modes.ONCE}, workers=1, fpm=fpm)
        else:
            args = ["--rewind", mode, "--rewind-verify", "1"]
            args += [flag for name, value in env.items() for flag in ("--env", f"{name}={value}")]
            server = Hayate(SITE, worker=SITE / "worker.php", workers=workers, ini=INI, args=args, user="www-data")
        with server:
            yield server, it
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def play(server: Server, it: Shop) -> list[tuple[str, list[str]]]:
    """Answers, and what was stored after each."""
    played = []
    for n, (do, end) in enumerate(STEPS):
        params = {"do": do, "end": end, "name": f"order {n}"}
        answer = requests.get(server.url + "/", params=params, timeout=60).text.partition("Stack trace")[0]
        played.append((answer, stored(server, it)))
    return played


def stored(server: Server, it: Shop) -> list[str]:
    # The worker has ended the request when it takes another: with two, both must have.
    for _ in range(100):
        try:
            return it.orders()
        except sqlite3.OperationalError:
            requests.get(server.url + "/", timeout=60)
    raise AssertionError("the database stays locked")


@pytest.mark.parametrize("journal", ["delete", "wal", "truncate"])
@pytest.mark.parametrize("api", ["pdo", "sqlite3"])
def test_what_a_request_stored_is_stored(api: str, journal: str) -> None:
    with shop("fpm", API=api, JOURNAL=journal) as (fpm, it):
        expected = play(fpm, it)
    assert "your order has number" in expected[1][0] and "order 1" in expected[1][1]
    for mode, workers in (("on", 2), ("on", 1), ("fork", 2)):
        with shop(mode, workers, API=api, JOURNAL=journal) as (hayate, it):
            assert play(hayate, it) == expected
            # In WAL mode the boot's connection keeps locks, which a second one to the same file would cost it: after the answer.
            expects = {"rewind_connection": 1} if journal == "wal" and mode == "on" else {}
            for _ in range(1000):
                (app,) = hayate.status()["apps"]
                if app["restarts"] == expects:
                    break
                time.sleep(0.01)
            assert app["restarts"] == expects
            assert app["fallback"] is None


REPLACED = """
$flags = getenv('READS') ? PDO::SQLITE_OPEN_READONLY : PDO::SQLITE_OPEN_READWRITE;
$db = new PDO('sqlite:' . __DIR__ . '/catalogue.db', options: [PDO::SQLITE_ATTR_OPEN_FLAGS => $flags]);
getenv('READS') || $db->exec('PRAGMA journal_mode = ' . getenv('JOURNAL'));
while (hayate_handle_request(function () use ($db) {
    getenv('READS') || $db->prepare('INSERT INTO t VALUES (?)')->execute([$_GET['who']]);
    echo json_encode($db->query('SELECT s FROM t ORDER BY rowid')->fetchAll(PDO::FETCH_COLUMN));
})) {
}
"""


@pytest.mark.parametrize(("journal", "reads"), [("delete", ""), ("wal", ""), ("delete", "1")], ids=["delete", "wal", "reads"])
@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_a_database_that_is_replaced_by_its_name(rewind: str, journal: str, reads: str) -> None:
    """As a catalogue that is made at night: the next request reads and writes the new one."""
    directory = temporary_directory("sqlite")
    directory.chmod(0o777)
    modes.write(directory, REPLACED)

    def put(name: str) -> None:
        with closing(sqlite3.connect(directory / "new.db")) as db, db:
            # Else two boots at once would both change it, and SQLite tells one of them that the database is locked.
            db.execute(f"PRAGMA journal_mode = {journal}")
            db.execute("CREATE TABLE t (s TEXT)")
            db.execute("INSERT INTO t VALUES (?)", (name,))
        (directory / "new.db").chmod(0o666)
        for more in ("-wal", "-shm"):
            (directory / f"catalogue.db{more}").unlink(missing_ok=True)
        (directory / "new.db").rename(directory / "catalogue.db")

    def play(server: Server) -> list[str]:
        said = []
        for night in ("first", "second", "third"):
            put(night)
            said += [modes.get(server, f"who={who}") for who in ("Ada", "Grace")]
        return said

    try:
        put("none")
        env = {"JOURNAL": journal, "READS": reads}
        fpm = {f"env[{name}]": value for name, value in env.items() if value}
        with NginxFpm(directory, index="worker.php", ini={**INI, **modes.ONCE}, workers=2, fpm=fpm) as server:
            expected = play(server)
        assert expected[2:4] == (['["second"]'] * 2 if reads else ['["second","Ada"]', '["second","Ada","Grace"]'])
        put("none")
        args = tuple(flag for name, value in env.items() for flag in ("--env", f"{name}={value}"))
        with modes.hayate(directory, rewind, "shared", workers=2, args=args) as server:
            assert play(server) == expected
            app = modes.application(server)
            assert app["fallback"] is None and set(app["restarts"]) == {"file_replaced"}, app
    finally:
        shutil.rmtree(directory, ignore_errors=True)


LINKED = """
$flags = PDO::SQLITE_OPEN_READWRITE;
$db = match (getenv('API')) {
    'pdo' => new PDO('sqlite:' . getenv('NAME'), options: [PDO::SQLITE_ATTR_OPEN_FLAGS => $flags]),
    'sqlite3' => new SQLite3(getenv('NAME')),
};
$read = fn () => $db instanceof PDO ? $db->query('SELECT s FROM t')->fetchColumn() : $db->querySingle('SELECT s FROM t');
getenv('READ') && $read();
while (hayate_handle_request(function () use ($db, $read) {
    isset($_GET['who']) && $db->exec("UPDATE t SET s = '$_GET[who]'");
    echo $read();
})) {
}
"""


def catalogue(file: pathlib.Path, said: str, updates: int = 0) -> None:
    with closing(sqlite3.connect(file)) as db:
        db.execute("CREATE TABLE t (s TEXT)")
        db.execute("INSERT INTO t VALUES (?)", (said,))
        db.commit()
        for n in range(updates):
            db.execute("UPDATE t SET s = ?", (said + str(updates - 1 - n or ""),))
            db.commit()
    file.chmod(0o666)


@pytest.mark.parametrize(
    ("api", "name"),
    [
        ("pdo", "current.db"),
        ("pdo", "current/geo.db"),
        ("pdo", "file:{}/current.db?mode=rw"),
        ("sqlite3", "current.db"),
        ("sqlite3", "current/geo.db"),
    ],
)
def test_a_database_behind_a_link_that_is_turned(api: str, name: str, directory: pathlib.Path) -> None:
    """As a deployment does. SQLite tells of an open database where links led to."""
    directory.chmod(0o777)
    for n in ("1", "2"):
        (directory / n).mkdir()
        (directory / n).chmod(0o777)
        catalogue(directory / n / "geo.db", n)

    def turn(to: str) -> None:
        for link, target in (("current", to), ("current.db", f"{to}/geo.db")):
            (directory / "new").symlink_to(target)
            (directory / "new").rename(directory / link)

    modes.write(directory, LINKED)
    turn("1")
    name = name.format(directory) if name.startswith("file:") else f"{directory}/{name}"
    with modes.hayate(directory, "on", "shared", workers=2, args=("--env", f"API={api}", "--env", f"NAME={name}")) as server:
        for n in ("1", "2", "1"):
            turn(n)
            assert [modes.get(server) for _ in range(3)] == [n] * 3


SWAPPED = """
$db = new PDO('sqlite::memory:');
$db->exec("ATTACH '" . __DIR__ . "/app.db' AS app");
file_put_contents(__DIR__ . '/boots', 'x', FILE_APPEND);
if (file_get_contents(__DIR__ . '/boots') === 'xx') { // the first one showed that each worker has to have its own
    rename(__DIR__ . '/new.db', __DIR__ . '/app.db');
}
while (hayate_handle_request(function () use ($db) { echo $db->query('SELECT s FROM app.t')->fetchColumn(); })) {
}
"""


def test_a_database_that_is_replaced_while_the_application_boots(directory: pathlib.Path) -> None:
    directory.chmod(0o777)
    catalogue(directory / "app.db", "old")
    catalogue(directory / "new.db", "new")
    modes.write(directory, SWAPPED)
    with modes.hayate(directory, "on", "private", workers=1) as server:
        assert [modes.get(server) for _ in range(3)] == ["new"] * 3
        assert modes.application(server)["restarts"] == {"file_replaced": 1}


def test_a_database_that_is_restored_in_place(directory: pathlib.Path) -> None:
    """By a copy of it from before: after as many writes its counters are those that the boot saw."""
    directory.chmod(0o777)
    file = directory / "app.db"
    catalogue(file, "of the boot", updates=4)
    catalogue(directory / "seed.db", "of the seed")
    modes.write(directory, LINKED)
    args = ("--env", "API=pdo", "--env", f"NAME={file}", "--env", "READ=1")
    with modes.hayate(directory, "on", "shared", workers=1, args=args) as server:
        assert modes.get(server) == "of the boot"
        file.write_bytes((directory / "seed.db").read_bytes())
        with closing(sqlite3.connect(file)) as db:
            for n in range(4):
                db.execute("UPDATE t SET s = ?", (f"of visitor {n}",))
                db.commit()
        assert modes.get(server) == "of visitor 3"
        assert modes.get(server, "who=Ada") == "Ada"
        with closing(sqlite3.connect(file)) as db:
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert db.execute("SELECT s FROM t").fetchall() == [("Ada",)]


REPLACES = """
$new = tempnam(__DIR__, 'db');
copy(__DIR__ . '/catalogue.db', $new);
rename($new, __DIR__ . '/catalogue.db');
"""
#: One after the other, and with time between: each is to find what is its own.
BUILDS = """
$lock = fopen(__DIR__ . '/alone', 'c');
flock($lock, LOCK_EX);
usleep(100000);
$new = tempnam(__DIR__, 'db');
$db = new PDO("sqlite:$new");
$db->exec('CREATE TABLE t (s TEXT)');
$db = null;
rename($new, __DIR__ . '/catalogue.db');
$db = new PDO('sqlite:' . __DIR__ . '/catalogue.db');
fclose($lock);
"""
#: What makes workers stale again and again: a request of visitors, or the boot of each worker those of the others.
AGAIN = {
    "requests": "$db = new PDO('sqlite:' . __DIR__ . '/catalogue.db'); while (hayate_handle_request(function () use ($db) {"
    f" echo $db->query('SELECT count(*) FROM t')->fetchColumn(); {REPLACES} }})) {{}}",
    "boots": f"{BUILDS} while (hayate_handle_request(function () use ($db) {{"
    # One worker is not to be enough.
    " echo $db->query('SELECT count(*) FROM t')->fetchColumn(); usleep(20000); })) {}",
}


def replace(directory: pathlib.Path) -> None:
    """Another file than any before it."""
    with closing(sqlite3.connect(directory / "new.db")) as db, db:
        db.execute("CREATE TABLE t (s TEXT)")
    (directory / "new.db").chmod(0o666)
    (directory / "new.db").rename(directory / "catalogue.db")


@pytest.mark.parametrize("who", AGAIN)
@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_a_database_that_is_replaced_again_and_again(rewind: str, who: str, directory: pathlib.Path) -> None:
    """That costs a boot for each request, or more: the application falls back, and says so."""
    replace(directory)
    modes.write(directory, AGAIN[who])
    modes.front_controller(directory)
    with modes.php_fpm(directory, workers=2) as server:
        assert [modes.get(server) for _ in range(4)] == ["0"] * 4
    with modes.hayate(directory, rewind, "shared", workers=2) as server:
        app = modes.application(server)
        for _ in range(100):
            if app["fallback"]:
                break
            assert modes.many(server, 2, at_once=2) == ["0"] * 2
            # While they boot another one may serve, which is not what this is about.
            assert wait_until(lambda: [worker["state"] for worker in modes.application(server)["workers"]] == ["idle"] * 2)
            app = modes.application(server)
        assert app["fallback"] is not None and app["fallback"]["to"] == "classic" and "replaced or removed by its name" in app["fallback"]["why"], app
        assert [modes.get(server) for _ in range(4)] == ["0"] * 4
        assert app["fallback"]["why"] in server.run("status").stdout


def test_a_database_that_is_replaced_once_is_one_event(directory: pathlib.Path) -> None:
    """It ends each worker, and is said once; it does not count as often as there are workers."""
    replace(directory)
    wait = "while (isset($_GET['wait']) && !file_exists(__DIR__ . '/go')) { usleep(10000); clearstatcache(); }"
    modes.write(directory, AGAIN["requests"].replace(REPLACES, wait))
    modes.front_controller(directory)

    def all_of(server: Hayate, count: int) -> None:
        (directory / "go").unlink(missing_ok=True)
        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            answers = [pool.submit(modes.get, server, "wait=1") for _ in range(count)]
            assert wait_until(lambda: sum(worker["state"] == "serving" for worker in modes.application(server)["workers"]) == count)
            (directory / "go").touch()
            assert [answer.result() for answer in answers] == ["0"] * count

    with modes.hayate(directory, "on", "shared", workers=12) as server:
        all_of(server, 12)
        replace(directory)
        all_of(server, 12)
        assert wait_until(lambda: modes.application(server)["restarts"] == {"file_replaced": 12}), modes.application(server)
        assert modes.application(server)["fallback"] is None
        assert server.log().count("replaced or removed by its name") == 1


@pytest.mark.parametrize("attached", ["", "1"])
def test_a_wal_whose_lock_is_lost_is_not_trusted(attached: str) -> None:
    """Whoever closes a descriptor of the file loses the process' locks: others may then remove the log under it."""
    with shop("on", 1, JOURNAL="wal", ATTACHED=attached) as (hayate, it):
        for n in range(3):
            requests.get(hayate.url + "/", params={"do": "file read", "name": f"order {n}"}, timeout=60)
            # Within the request it is as under php-fpm: so another process looks only when it is over.
            for _ in range(1000):
                (app,) = hayate.status()["apps"]
                if app["restarts"] == {"rewind_connection": n + 1}:
                    break
                time.sleep(0.01)
            assert app["restarts"] == {"rewind_connection": n + 1}
            assert stored(hayate, it)[2:] == [f"order {k}" for k in range(n + 1)]


def locks(it: Shop) -> list[list[str]]:
    """What the kernel says of the database's locks: who holds which part."""
    of = f":{it.file.stat().st_ino}"
    return sorted(line.split()[1:] for line in pathlib.Path("/proc/locks").read_text().splitlines() if line.split()[5].endswith(of))


@pytest.mark.parametrize("attached", ["", "1"])
def test_a_request_that_attaches_the_database_costs_its_worker(attached: str) -> None:
    """By a connection of its own: what that closes takes the locks of the boot's. SQLite 3.46 (3.40 does not) keeps those of one that has attached it."""
    with shop("on", 1, JOURNAL="wal", ATTACHED=attached) as (hayate, it):
        if attached and sqlite3.sqlite_version_info >= (3, 46):
            held = locks(it)
            assert held
            for _ in range(3):
                assert requests.get(hayate.url + "/", params={"do": "attached"}, timeout=60).text == "some"
            # It begins when the one before is over.
            assert requests.get(hayate.url + "/", params={"do": "read"}, timeout=60).ok
            (app,) = hayate.status()["apps"]
            assert (app["restarts"], app["fallback"], locks(it)) == ({}, None, held)
            return
        for n in range(3):
            assert requests.get(hayate.url + "/", params={"do": "attached"}, timeout=60).text == "some"
            for _ in range(1000):
                (app,) = hayate.status()["apps"]
                if sum(app["restarts"].values()) == n + 1:
                    break
                time.sleep(0.01)
            assert sum(app["restarts"].values()) == n + 1, app["restarts"]
        assert app["fallback"] is None


@pytest.mark.parametrize("attached", ["", "1"])
@pytest.mark.parametrize("left", ["half-read", "transaction", "exclusive"])
@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_a_boot_in_the_middle_of_something_is_not_rewound(rewind: str, left: str, attached: str) -> None:
    """Its lock would be imagined by each request. Each boots by itself instead, as under php-fpm, and the log says why."""
    directory = temporary_directory("sqlite")
    try:
        it = Shop(directory)
        shutil.copy(SITE / "worker.php", directory)
        (directory / "index.php").write_text("<?php echo 'the front controller';")
        env = {"FILE": str(it.file), "API": "pdo", "JOURNAL": "delete", "LEFT": left, "ATTACHED": attached}
        args = ["--rewind", rewind, *(flag for name, value in env.items() for flag in ("--env", f"{name}={value}"))]
        # With a front controller it can be served in classic mode.
        with Hayate(directory, worker=directory / "worker.php", workers=1, ini=INI, args=args, user="www-data") as hayate:
            (app,) = hayate.status()["apps"]
            assert app["mode"] == "classic" and "SQLite" in app["fallback"]["why"], app
            assert requests.get(hayate.url + "/", timeout=60).text == "the front controller"
            assert "closeCursor()" in hayate.log_tail()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


AUTHORIZED = """<?php
$db = new SQLite3(__DIR__ . '/db');
$db->exec('CREATE TABLE IF NOT EXISTS t (s TEXT); BEGIN IMMEDIATE');
$db->setAuthorizer(fn (int $action) => $action === SQLite3::PRAGMA ? SQLite3::DENY : SQLite3::OK);
while (hayate_handle_request(function () { echo 'the worker'; })) {
}
"""


def test_an_authorizer_hides_no_transaction() -> None:
    directory = temporary_directory("sqlite")
    try:
        directory.chmod(0o777)
        (directory / "worker.php").write_text(AUTHORIZED)
        (directory / "index.php").write_text("<?php echo 'the front controller';")
        with Hayate(directory, worker=directory / "worker.php", workers=1, ini=INI) as hayate:
            (app,) = hayate.status()["apps"]
            assert app["mode"] == "classic" and "a transaction open" in app["fallback"]["why"], app
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def test_a_warmup_request_in_the_middle_of_something_is_left_out() -> None:
    with shop("on", LEFT_WARM="1") as (hayate, it):
        (app,) = hayate.status()["apps"]
        assert "half-read" in app["cold_boot"], app
        assert requests.get(hayate.url + "/", params={"do": "read"}, timeout=60).text == "first second "
        assert it.orders() == ["first", "second"]


LOOKS_UP = """<?php
class Words { static ?PDO $db = null; }
while (hayate_handle_request(function () {
    Words::$db ??= new PDO('sqlite:' . __DIR__ . '/words.db', null, null, [PDO::SQLITE_ATTR_OPEN_FLAGS => HOW]);
    echo Words::$db->query('SELECT word FROM words')->fetchColumn();
})) {
}
"""


@pytest.mark.parametrize(("how", "warm"), [("PDO::SQLITE_OPEN_READONLY", True), ("PDO::SQLITE_OPEN_READWRITE", False)], ids=["reads", "writes"])
@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_a_database_that_a_warmup_request_opens_and_keeps(rewind: str, how: str, warm: bool) -> None:
    """To read only, it costs a boot for each worker, not the warm-up; and one that is replaced is read anew."""
    directory = temporary_directory("sqlite")
    try:
        directory.chmod(0o777)
        for name, word in (("words.db", "old"), ("new.db", "new")):
            with closing(sqlite3.connect(directory / name)) as db, db:
                db.execute("CREATE TABLE words (word)")
                db.execute("INSERT INTO words VALUES (?)", (word,))
        (directory / "worker.php").write_text(LOOKS_UP.replace("HOW", how))
        args = ["--rewind", rewind, "--warmup", "/"]
        with Hayate(directory, worker=directory / "worker.php", workers=2, ini=INI, args=args) as hayate:
            (app,) = hayate.status()["apps"]
            assert (app["boot"], app["cold_boot"] is None) == ("private" if warm else "shared", warm), app
            assert {requests.get(hayate.url, timeout=60).text for _ in range(8)} == {"old"}
            (directory / "new.db").rename(directory / "words.db")
            assert {requests.get(hayate.url, timeout=60).text for _ in range(8)} == {"new"}
    finally:
        shutil.rmtree(directory, ignore_errors=True)
