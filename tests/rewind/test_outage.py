"""Warm connections whose server refuses who comes, or ends what it was asked: requests get its errors, and none of that outlasts its trouble."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time

import requests
from lib.process import stop_process, temporary_directory, wait_until
from lib.servers import Hayate, MariaDB, Redis

from .matrix_site import USER

WORKER = r"""<?php
class Store {
    public ?Redis $redis = null;
    function open(): Redis {
        if (!$this->redis) { $redis = new Redis; $redis->connect('127.0.0.1', (int) getenv('PORT'), 3); $this->redis = $redis; }
        return $this->redis;
    }
}
$store = new Store;
// Connected, and then refused: the client stays, and no request opens one of its own.
hayate_on_worker_start(fn () => $store->open()->ping());
while (hayate_handle_request(function () use ($store) {
    try {
        echo 'ok ', $store->open()->incr('visits');
    } catch (RedisException $error) {
        http_response_code(500);
        echo $error->getMessage();
    }
})) { }
"""


def serve(worker: str, workers: int, **env: object) -> Hayate:
    directory = temporary_directory("outage")
    (directory / "worker.php").write_text(worker)
    # Without it the server would have no classic mode to fall back to.
    (directory / "index.php").write_text("<?php echo 'classic';")
    config = f"""
        [[app]]
        root = "{directory}"
        worker = "worker.php"
        workers = {workers}
        rewind = "on"
        connections = "warm"
        warmup = []
        [app.env]
    """
    return Hayate(config=config + "\n".join(f'{name} = "{value}"' for name, value in env.items()), user=USER)


def test_redis_that_wants_a_password_for_a_while(hayate_command) -> None:
    with Redis() as redis, contextlib.closing(socket.create_connection(("127.0.0.1", redis.port))) as admin:

        def tell(*commands: str) -> None:
            for command in commands:
                admin.sendall(f"{command}\r\n".encode())
                assert not admin.recv(1000).startswith(b"-"), command

        with serve(WORKER, 2, PORT=redis.port) as server:
            assert requests.get(server.url, timeout=60).text == "ok 1"
            tell("CONFIG SET requirepass secret", "CLIENT KILL TYPE normal SKIPME yes")
            refused = [requests.get(server.url, timeout=60) for _ in range(60)]
            assert all(answer.status_code == 500 and "NOAUTH" in answer.text for answer in refused[5:]), refused[-1].text
            tell('CONFIG SET requirepass ""')
            assert wait_until(lambda: requests.get(server.url, timeout=60).status_code == 200)
            assert all(requests.get(server.url, timeout=60).text.startswith("ok ") for _ in range(60))
            (app,) = server.status()["apps"]
            # Two that had a connection when it was closed, and no request's own client costs one.
            assert app["fallback"] is None and app["restarts"].get("rewind_connection", 0) <= 2, app
            assert "Workers serve without it for ten seconds" in server.log()
            assert wait_until(lambda: server.status()["apps"][0]["rewind"]["warm"] >= 1, 60)


QUERIES = r"""<?php
$open = static fn () => new PDO('mysql:unix_socket='.getenv('SOCKET').';dbname='.getenv('NAME'), getenv('WHO'), getenv('PASSWORD'));
$db = null;
hayate_on_worker_start(static function () use ($open, &$db) { ($db = $open())->query('SELECT 1')->fetchAll(); });
while (hayate_handle_request(static function () use ($open, &$db) {
    try {
        echo 'ok ', ($db ?? $open())->query('SELECT SLEEP('.(int) ($_GET['seconds'] ?? 0).')')->fetchColumn();
    } catch (PDOException $error) {
        http_response_code(500);
        echo $error->getMessage();
    }
})) { }
"""


def test_queries_under_way_when_the_database_ends_their_connections(hayate_command) -> None:
    """As in a restart of the database: ten workers at once have a connection that is gone, and that is one event."""
    with MariaDB() as database:
        env = {"SOCKET": database.socket, "NAME": database.database, "WHO": database.user, "PASSWORD": database.password}
        with serve(QUERIES, 10, **env) as server:
            assert wait_until(lambda: server.status()["apps"][0]["rewind"]["warm"] == 10)
            answers: list[requests.Response] = []
            asking = [threading.Thread(target=lambda: answers.append(requests.get(f"{server.url}/?seconds=300", timeout=60))) for _ in range(10)]
            for thread in asking:
                thread.start()
            under_way = "SELECT id FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP(300)%'"
            assert wait_until(lambda: len(database.sql(under_way).split()) >= 10), database.sql("SHOW PROCESSLIST")
            for number in [word for word in database.sql(under_way).split() if word.isdigit()]:
                database.sql(f"KILL {number}")
            for thread in asking:
                thread.join(60)
            assert [answer.status_code for answer in answers] == [500] * 10
            assert wait_until(lambda: server.status()["apps"][0]["rewind"]["warm"] == 10)
            assert all(requests.get(server.url, timeout=60).text == "ok 0" for _ in range(20))
            (app,) = server.status()["apps"]
            assert app["fallback"] is None and app["restarts"]["rewind_connection"] >= 8, app


def test_nobody_waits_again_for_a_database_that_hangs(hayate_command) -> None:
    """Each of four workers waits for it once, for its connection to be put back; those that take their places do not."""
    hold = """function hold(): void {
    touch(getenv('PLACE').'/held.'.getmypid());
    while (!file_exists(getenv('PLACE').'/go')) { usleep(2000); clearstatcache(); }
}
"""
    pages = QUERIES.replace("<?php\n", f"<?php\n{hold}").replace("echo 'ok ',", "isset($_GET['none']) ? print 'without' : print 'ok '.")
    pages = pages.replace("    } catch", "        isset($_GET['hold']) && hold();\n    } catch")
    place = temporary_directory("held")
    place.chmod(0o777)
    with MariaDB() as database:
        env = {"SOCKET": database.socket, "NAME": database.database, "WHO": database.user, "PASSWORD": database.password, "PLACE": place}
        with serve(pages, 4, **env) as server:
            assert wait_until(lambda: server.status()["apps"][0]["rewind"]["warm"] == 4)
            answers: list[str] = []
            asking = [threading.Thread(target=lambda: answers.append(requests.get(f"{server.url}/?hold", timeout=60).text)) for _ in range(4)]
            for thread in asking:
                thread.start()
            assert wait_until(lambda: len(list(place.glob("held.*"))) == 4)
            stop_process(database.pid)
            try:
                (place / "go").touch()
                for thread in asking:
                    thread.join(60)
                assert answers == ["ok 0"] * 4
                lost_all = wait_until(lambda: server.status()["apps"][0]["restarts"].get("connection_lost", 0) >= 4, 60)
                assert lost_all, (server.status()["apps"][0]["restarts"], server.log()[-3000:])
                lost = time.monotonic()
                assert all(requests.get(f"{server.url}/?none", timeout=60).text == "without" for _ in range(20))
                # Ten seconds after it was lost the first tries again, which a machine that is busy may not leave to the requests above.
                if time.monotonic() - lost < 8:
                    assert "What hayate_on_worker_start() was given" not in server.log()
            finally:
                os.kill(database.pid, signal.SIGCONT)
            assert wait_until(lambda: server.status()["apps"][0]["rewind"]["warm"] >= 1, 60)
