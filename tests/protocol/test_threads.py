"""Several threads of the front: one queue for all, connections spread over them, and nothing lost when workers, fronts or programs change.

Four threads whatever the machine has, so that they get in each other's way.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import os
import signal
import socket
import subprocess
import threading
import time

import pytest
import requests
from lib import over
from lib.process import wait_until
from lib.servers import Hayate

THREADS = 4
PAGES = {
    "ok.php": "<?php echo 'ok ', $_SERVER['QUERY_STRING'];",
    # Notes that it began, then waits until it may end.
    "hold.php": """<?php
        file_put_contents(__DIR__ . '/began', $_SERVER['QUERY_STRING'] . "\\n", FILE_APPEND | LOCK_EX);
        set_time_limit(0);
        while (!file_exists(__DIR__ . '/go')) { usleep(2000); clearstatcache(); }
        echo 'held ', $_SERVER['QUERY_STRING'];""",
    # Makes each write to its own eventfds wait for ever.
    "fill.php": """<?php
        $c = FFI::cdef('long write(int, const void *, size_t); int fcntl(int, int, ...);');
        $most = FFI::new('uint64_t'); $most->cdata = -2;
        for ($fd = 7; $fd < 7 + 4; $fd++) {
            $c->fcntl($fd, 4, 2);
            echo $c->write($fd, FFI::addr($most), 8) === 8 ? 'full ' : 'no ';
        }""",
}


def config(root, *, app: str = "", name: str = "site", workers: int = 4) -> str:
    return f'front_threads = {THREADS}\n[[app]]\nname = "{name}"\nroot = "{root}"\nworkers = {workers}\n{app}\n'


@pytest.fixture
def root(tmp_path):
    for name, text in PAGES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def start(hayate_command):
    with contextlib.ExitStack() as stack:
        yield lambda text, **more: stack.enter_context(Hayate(config=text, **more))


def not_over_http2() -> None:
    """A thread that writes bytes of HTTP/1 cannot leave the test out by itself."""
    if over.protocol == over.H2:
        raise over.NoForm("the test writes bytes of HTTP/1")


def connect(server: Hayate) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.connect()
    return connection


def ask(server: Hayate, path: str) -> tuple[int, str]:
    """One request on a connection of its own."""
    with contextlib.closing(connect(server)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


class Load:
    """Requests from several threads until the end; `again` for each on a connection of its own."""

    def __init__(self, server: Hayate, path: str = "/ok.php", *, users: int = 8, again: bool = False) -> None:
        if again:
            not_over_http2()
        self.server, self.path, self.again = server, path, again
        self.answers: list[int] = []
        self.broken: list[Exception] = []
        self._over = threading.Event()
        self._users = [threading.Thread(target=self._run) for _ in range(users)]

    def _run(self) -> None:
        session = requests.Session()
        while not self._over.is_set():
            try:
                if self.again:
                    self.answers.append(ask(self.server, self.path)[0])
                else:
                    self.answers.append(session.get(self.server.url + self.path, timeout=60).status_code)
            except Exception as error:  # noqa: BLE001 (whatever it is, the test shows it)
                self.broken.append(error)

    def __enter__(self) -> Load:
        for user in self._users:
            user.start()
        return self

    def __exit__(self, *_exc) -> None:
        self._over.set()
        for user in self._users:
            user.join(90)
        assert not any(user.is_alive() for user in self._users), "a request hangs"


def test_long_connections_are_spread_and_all_are_served(start, root) -> None:
    server = start(config(root))
    assert len(server.status()["threads"]) == THREADS
    connections = [connect(server) for _ in range(100)]
    for turn in range(2):
        for i, connection in enumerate(connections):
            connection.request("GET", f"/ok.php?{turn}-{i}")
            assert connection.getresponse().read().decode() == f"ok {turn}-{i}"
    counts = server.status()["threads"]
    assert sum(counts) == server.status()["connections"] == 100
    assert max(counts) - min(counts) <= 10, counts
    metrics = socket_get(server, "/metrics")
    assert all(f'hayate_thread_connections{{thread="{n}"}} {count}' in metrics for n, count in enumerate(counts))
    for connection in connections:
        connection.close()
    assert wait_until(lambda: sum(server.status()["threads"]) == 0), server.status()


def socket_get(server: Hayate, path: str) -> str:
    with socket.socket(socket.AF_UNIX) as control:
        control.connect(str(server.control))
        control.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        return b"".join(iter(lambda: control.recv(65536), b"")).decode()


def test_requests_of_all_threads_wait_in_one_queue_in_their_order_and_no_more_than_may(start, root) -> None:
    not_over_http2()
    limit = 12
    server = start(config(root, workers=1, app=f"queue_limit = {limit}"))
    began = root / "began"
    with concurrent.futures.ThreadPoolExecutor(limit + 41) as pool:
        waiting = []
        for i in range(limit + 1):
            waiting.append(pool.submit(ask, server, f"/hold.php?{i}"))
            # The first is being served; the others come one by one.
            assert wait_until(
                lambda i=i: began.exists() and server.status()["apps"][0]["queue"] == i, 60
            ), server.status()
        assert max(server.status()["threads"]) < limit, "they are on several threads"
        # Forty more at once, on all threads: none of them fits.
        refused = list(pool.map(lambda i: ask(server, f"/ok.php?{i}")[0], range(40)))
        assert refused == [503] * 40
        assert server.status()["apps"][0]["queue"] == limit
        (root / "go").touch()
        assert [answer.result(60) for answer in waiting] == [(200, f"held {i}") for i in range(limit + 1)]
    assert began.read_text().split() == [str(i) for i in range(limit + 1)]


def test_workers_killed_under_load_cost_a_request_each_at_most(start, root) -> None:
    server = start(config(root))
    kills = 0
    with Load(server, users=8) as load:
        end = time.monotonic() + 5
        while time.monotonic() < end or load.answers.count(200) <= 100 and time.monotonic() < end + 60:
            workers = [worker["pid"] for worker in server.status()["apps"][0]["workers"]]
            for pid in workers[:1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    kills += 1
            time.sleep(0.2)
    assert not load.broken and set(load.answers) <= {200, 502}, (load.broken[:3], set(load.answers))
    assert load.answers.count(502) <= kills and load.answers.count(200) > 100
    assert wait_until(lambda: server.status()["apps"][0]["active"] == 0), "a slot leaks"
    assert all(ask(server, f"/ok.php?{i}") == (200, f"ok {i}") for i in range(20))


def test_reloads_and_upgrades_under_load_fail_no_request(start, root) -> None:
    server = start(config(root))
    with Load(server, users=6, again=True) as load:
        fronts = {server.status()["front"]}
        for _ in range(2):
            assert server.reload().returncode == 0, server.log_tail()
            done = server.run("upgrade", timeout=90)
            assert done.returncode == 0, (done, server.log_tail())
            fronts.add(server.status()["front"])
        assert len(fronts) == 3
    assert not load.broken and set(load.answers) == {200}, (load.broken[:3], set(load.answers))
    assert len(server.status()["threads"]) == THREADS


def test_a_script_that_fills_its_doorbells_harms_its_application_alone(start, root) -> None:
    good, bad = root / "good", root / "bad"
    for place in (good, bad):
        place.mkdir()
        for name, text in PAGES.items():
            (place / name).write_text(text)
    text = 'drain_timeout = "2s"\n' + config(good, app='path = "/"', name="good") + (
        f'[[app]]\nname = "bad"\nroot = "{bad}"\npath = "/bad"\nworkers = 2\nqueue_timeout = "2s"\n'
    )
    server = start(text, ini={"ffi.enable": "1"})
    assert ask(server, "/bad/fill.php") == (200, "full " * THREADS)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        # Its answers may be late, or not come.
        late = [pool.submit(ask, server, f"/bad/ok.php?{i}") for i in range(4)]
        for i in range(200):
            assert ask(server, f"/ok.php?{i}") == (200, f"ok {i}")
        assert {answer.result(60)[0] for answer in late} <= {200, 502, 503}
    assert socket_get(server, "/healthz").startswith("HTTP/1.1 200")


def test_a_storm_of_connections_is_answered(start, root) -> None:
    server = start(config(root) + "[limits]\nconnections = 500\n")
    with concurrent.futures.ThreadPoolExecutor(60) as pool:
        # Some leave before they are accepted, some before they say anything.
        def rude(i: int) -> None:
            with socket.create_connection(("127.0.0.1", server.port), 30) as connection:
                if i % 3:
                    connection.sendall(b"GET /ok.php HTTP/1.1\r\n")

        jobs = [pool.submit(rude if i % 4 == 0 else ask, *((i,) if i % 4 == 0 else (server, f"/ok.php?{i}"))) for i in range(3000)]
        answers = [job.result(120) for job in jobs]
    assert {answer[0] for answer in answers if answer} == {200}
    assert wait_until(lambda: sum(server.status()["threads"]) == server.status()["connections"] == 0)


def test_the_number_of_threads_is_checked(hayate_command, root) -> None:
    for text in ("0", "65"):
        file = root.with_suffix(".toml")
        file.write_text(config(root).replace(f"front_threads = {THREADS}", f"front_threads = {text}"))
        done = subprocess.run([hayate_command, "check", "--config", file], capture_output=True, text=True, timeout=60)
        assert done.returncode != 0 and f"front_threads: {text} is out of range; write 1 to 64" in done.stderr, done


def test_idle_threads_sleep(start, root) -> None:
    server = start(config(root))
    assert ask(server, "/ok.php?1")[0] == 200

    def turns() -> dict[str, int]:
        tasks = f"/proc/{server.status()['front']}/task"
        of = {}
        for task in os.listdir(tasks):
            with open(f"{tasks}/{task}/status") as status, open(f"{tasks}/{task}/comm") as comm:
                if comm.read().startswith("front-"):
                    of[task] = sum(int(line.split()[1]) for line in status if "ctxt_switches" in line)
        return of

    assert wait_until(lambda: server.status()["connections"] == 0)
    seen: list[dict[str, int]] = []

    def sleeps() -> bool:
        """What there was to look after has been looked after at some time. The master may ask once for a sign of life."""
        before = turns()
        time.sleep(4)
        assert len(before) == THREADS
        seen.append({task: after - before[task] for task, after in turns().items()})
        return max(seen[-1].values()) <= 6

    assert wait_until(sleeps), seen
