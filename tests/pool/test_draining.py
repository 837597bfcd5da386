"""What a generation that was replaced keeps: a worker for each request that it has, and a zygote to fork one for those that wait. Slow readers
used to keep all of the pool, for an hour after each reload and each upgrade."""

from __future__ import annotations

import pathlib
import socket
import threading
import time

import pytest
import requests

from lib.process import still_running, wait_until
from lib.servers import GENERIC_WORKER, Hayate

WORKERS = 6
MEGABYTES = 20
BIG = f"<?php for ($i = 0; $i < {MEGABYTES}; $i++) {{ echo str_repeat(chr(97 + $i), 1 << 20); }}"


@pytest.fixture(params=["classic", "worker"])
def server(request, tmp_path):
    root = tmp_path / "site"
    root.mkdir()
    (root / "ok.php").write_text("<?php echo 'ok ', getmypid();")
    (root / "big.php").write_text(BIG)
    (root / "sleep.php").write_text("<?php usleep((int)($_GET['ms'] * 1000)); echo 'slept ', getmypid();")
    worker = f'worker = "{GENERIC_WORKER}"\n' if request.param == "worker" else ""
    with Hayate(config=f'drain_timeout = "2s"\n[limits]\nwrite_timeout = "600s"\n[[app]]\nroot = "{root}"\nworkers = {WORKERS}\n{worker}') as server:
        yield server


def slow_reader(server: Hayate) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(60)
    client.connect(("127.0.0.1", server.port))
    client.sendall(b"GET /big.php HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    time.sleep(0.5)
    return client


def whole(client: socket.socket) -> bool:
    data = bytearray()
    while piece := client.recv(1 << 20):
        data += piece
    client.close()
    return all(data.count(bytes([97 + i])) >= 1 << 20 for i in range(MEGABYTES)) and data.endswith(b"0\r\n\r\n")


def wakeups(pid: int) -> int:
    """How often the main thread of a process has waited."""
    status = pathlib.Path(f"/proc/{pid}/task/{pid}/status").read_text()
    return int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0])


def test_a_slow_reader_at_each_reload_keeps_one_worker(server) -> None:
    readers = []
    for _ in range(3):
        readers.append(slow_reader(server))
        assert server.reload().returncode == 0, server.log_tail()
    # The front and the pool; of each one before a zygote and a worker.
    few = 2 + WORKERS + len(readers) * 2
    assert wait_until(lambda: len(server.family()) == few), (few, server.family())
    assert server.status()["draining"] == len(readers)
    time.sleep(6)
    # The supervision of them all, and the signs of life.
    before, began = wakeups(server.front), time.monotonic()
    time.sleep(4)
    rate = (wakeups(server.front) - before) / (time.monotonic() - began)
    assert rate < 10 * len(readers), f"the front's main thread wakes up {rate:.0f} times a second"
    assert all(whole(reader) for reader in readers)
    assert wait_until(lambda: len(server.family()) == 2 + WORKERS), server.family()


def test_a_request_that_waits_is_served_where_it_waits(server) -> None:
    """More than there are workers."""
    answers: list[str] = []

    def ask() -> None:
        answers.append(requests.get(f"{server.url}/sleep.php?ms=1500", timeout=60).text)

    threads = [threading.Thread(target=ask) for _ in range(2 * WORKERS)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    old = server.family()
    assert server.reload().returncode == 0, server.log_tail()
    for thread in threads:
        thread.join()
    assert len(answers) == 2 * WORKERS and all(answer.startswith("slept") for answer in answers), answers
    assert wait_until(lambda: len(still_running(old)) == 1), "the front is left"


def test_an_upgrade_leaves_a_worker_for_each_request(server) -> None:
    reader = slow_reader(server)
    old = server.family()
    assert server.run("upgrade", timeout=60).returncode == 0, server.log_tail()
    # The front, its zygote, the reader's worker.
    assert wait_until(lambda: len(still_running(old)) == 3), still_running(old)
    assert whole(reader)
    assert wait_until(lambda: still_running(old) == []), still_running(old)


def test_a_connection_of_before_an_upgrade_is_answered_by_a_worker_that_is_forked_for_it(server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as late:
        # Half a head: the old front waits for the rest.
        late.sendall(b"GET /ok.php HTTP/1.1\r\nHost: a\r\n")
        time.sleep(0.3)
        old = server.family()
        assert server.run("upgrade", timeout=60).returncode == 0, server.log_tail()
        assert wait_until(lambda: len(still_running(old)) == 2), still_running(old)
        late.sendall(b"Connection: close\r\n\r\n")
        answer = b""
        while piece := late.recv(65536):
            answer += piece
        assert answer.startswith(b"HTTP/1.1 200") and b"ok " in answer
        assert int(answer.rsplit(b"ok ", 1)[1].split()[0]) not in old
    assert wait_until(lambda: still_running(old) == []), still_running(old)
