"""Clients that are slow on purpose: unfinished heads, bodies in pieces of a byte, readers that read nothing. They cost a bounded amount of
memory, work and disk, and hold no worker that others wait for."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import re
import resource
import select
import shutil
import socket
import struct
import termios
import threading
import time
from collections.abc import Iterator

import pytest
import requests

from lib import disk, site
from lib.cgroups import MemoryGroup, Unavailable, memory_group
from lib.process import in_temporary_files, temporary_directory, wait_until
from lib.servers import Hayate, free_port

pytestmark = pytest.mark.plain("what is slow is bytes of HTTP/1 on bare sockets; HTTP/2 has its own")


def resident(server: Hayate) -> int:
    """Bytes."""
    text = pathlib.Path(f"/proc/{server.front}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", text)[1]) << 10


def received(s: socket.socket) -> bytes:
    """All that comes until the other end closes."""
    data = b""
    while piece := s.recv(65536):
        data += piece
    return data


def written(server: Hayate) -> int:
    """Calls of write(2) and its kin so far."""
    return int(re.search(r"syscw: (\d+)", pathlib.Path(f"/proc/{server.front}/io").read_text())[1])


def turns(pid: int) -> int:
    """How often it has called read(2), write(2) or one of their kin, or gone to sleep, so far."""
    io = pathlib.Path(f"/proc/{pid}/io").read_text()
    tasks = [(task / "status").read_text() for task in pathlib.Path(f"/proc/{pid}/task").iterdir()]
    sleeps = (int(re.search(r"(?m)^voluntary_ctxt_switches:\s+(\d+)", task)[1]) for task in tasks)
    return sum(map(int, re.findall(r"sysc[rw]: (\d+)", io))) + sum(sleeps)


def cpu(pid: int) -> int:
    """Processor time of all its threads so far, in nanoseconds."""
    return sum(int((task / "schedstat").read_text().split()[0]) for task in pathlib.Path(f"/proc/{pid}/task").iterdir())


def unread(s: socket.socket) -> int:
    """Bytes of memory that what the other end of a unix socket has not read takes up."""
    room = struct.pack("i", 0)
    return struct.unpack("i", fcntl.ioctl(s, termios.TIOCOUTQ, room))[0]


def connect(server: Hayate, *, buffer: int = 0) -> socket.socket:
    s = socket.socket()
    if buffer:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    s.settimeout(20)
    s.connect(("127.0.0.1", server.port))
    return s


@contextlib.contextmanager
def many_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def others_are_served(server: Hayate, n: int = 5) -> None:
    for i in range(n):
        assert requests.get(f"{server.url}/ok.php?{i}", timeout=30).text == f"ok {i}"


def test_three_thousand_unfinished_heads_cost_little_and_nothing_afterwards(hayate_command, tmp_path) -> None:
    root = site.make(tmp_path)
    metrics = f"127.0.0.1:{free_port()}"
    config = f'metrics = "{metrics}"\n[limits]\nheader_timeout = "5m"\n[[app]]\nroot = "{root}"\nworkers = 1\n'
    with many_files(), Hayate(config=config) as server:
        others_are_served(server)
        before = resident(server)
        head = b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 31_000
        attackers = []
        for _ in range(3000):
            s = connect(server)
            with contextlib.suppress(OSError):
                s.sendall(head)
            attackers.append(s)
        others_are_served(server)
        during = resident(server)

        def given_up() -> int:
            text = requests.get(f"http://{metrics}/metrics", timeout=30).text
            return int(re.search(r"(?m)^hayate_heads_given_up_total (\d+)$", text)[1])

        # `gather_memory` at its default: 32 MB of 95 that were sent.
        assert wait_until(lambda: given_up() >= 1500), given_up()
        assert during - before < 80 << 20, f"{(during - before) >> 20} MB for unfinished heads"
        assert server.logged("gather_memory is reached")
        for s in attackers:
            s.close()
        assert wait_until(lambda: resident(server) - before < 20 << 20), f"{(resident(server) - before) >> 20} MB are kept"
        others_are_served(server)


def test_bodies_that_fill_the_memory_for_what_is_unfinished_cost_nobody_a_head(hayate_command, tmp_path) -> None:
    root = site.make(tmp_path)
    config = f'[limits]\ngather_memory = "1M"\nbody_timeout = "5m"\n[[app]]\nroot = "{root}"\nworkers = 1\n'
    head = b"POST /count.php HTTP/1.1\r\nHost: a\r\nContent-Length: 32000\r\nConnection: close\r\n\r\n"
    with many_files(), Hayate(config=config) as server:
        attackers = [connect(server) for _ in range(100)]
        for attacker in attackers:
            attacker.sendall(head + b"x" * 31_000)
        others_are_served(server)
        # Each comes in two parts, which is all that is wrong with it.
        for _ in range(20):
            with connect(server) as victim:
                victim.sendall(b"GET /ok.php?x HTTP/1.1\r\nHost: a\r\nCookie: ")
                time.sleep(0.05)
                victim.sendall(b"a=b\r\nConnection: close\r\n\r\n")
                assert received(victim).endswith(b"ok x")
        assert "gather_memory is reached" not in server.log()
        # What did not find room in memory is in files, and is answered when the rest comes.
        for attacker in attackers:
            attacker.sendall(b"x" * 1000)
        assert all(received(attacker).endswith(b"32000") for attacker in attackers)


@pytest.fixture
def little_memory() -> Iterator[MemoryGroup]:
    with contextlib.ExitStack() as stack:
        try:
            group = stack.enter_context(memory_group("test"))
        except Unavailable as why:
            pytest.skip(str(why))
        yield group


class Inside(Hayate):
    """It and all that it starts is in a cgroup."""

    def __init__(self, *arguments, group: MemoryGroup, **more) -> None:
        super().__init__(*arguments, **more)
        self._group = group

    def command(self) -> list[str]:
        return self._group.enter(super().command())


def test_where_memory_runs_out_workers_go_and_the_front_answers_on(hayate_command, tmp_path, little_memory) -> None:
    """Although it holds more than each of them: visitors' unfinished heads. Their place in the order is 300 thousandths of the limit."""
    root = site.make(tmp_path)
    (root / "eat.php").write_text(
        "<?php ini_set('memory_limit', '-1'); set_time_limit(0); $all = [];"
        " for ($i = 0; $i < 80; $i++) { $all[] = str_repeat('x', 1 << 20); usleep(20000); }"
        " while (!file_exists($_GET['go'])) { usleep(5000); clearstatcache(); } echo count($all);"
    )
    config = f'[limits]\ngather_memory = "256M"\nheader_timeout = "5m"\n[[app]]\nroot = "{root}"\nworkers = 4\nrequest_timeout = "5m"\n'
    with many_files(), Inside(config=config, group=little_memory) as server:
        front = server.front
        assert str(front) in little_memory.procs.read_text().split()
        head = b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 31_000
        before = resident(server)
        waiting = [connect(server) for _ in range(1200)]
        for s in waiting:
            s.sendall(head)
        assert wait_until(lambda: resident(server) - before > 32 << 20), resident(server)
        little_memory.leave(140 << 20)
        statuses: list[int] = []
        # Four times 80 MB are wanted.
        eating = [
            threading.Thread(
                target=lambda: statuses.append(requests.get(f"{server.url}/eat.php?go={tmp_path}/go", timeout=300).status_code)
            )
            for _ in range(4)
        ]
        for thread in eating:
            thread.start()
        assert wait_until(lambda: 502 in statuses), "nobody was killed"
        (tmp_path / "go").touch()
        for thread in eating:
            thread.join()
        assert server.front == front and set(statuses) <= {200, 502}, statuses
        restarts = server.status()["apps"][0]["restarts"]
        assert restarts.get("out_of_memory", 0) >= statuses.count(502) and "signal_9" not in restarts, restarts
        assert "the kernel killed it for want of memory" in server.log()
        others_are_served(server)
        for s in waiting:
            s.close()


def test_of_unfinished_heads_the_oldest_go_whichever_thread_has_them(hayate_command, tmp_path) -> None:
    """A thread that has reached gather_memory does not give up whoever has just come to it, while other threads hold the attacker's."""
    root = site.make(tmp_path)
    config = f'front_threads = 8\n[limits]\ngather_memory = "4M"\nheader_timeout = "300s"\n[[app]]\nroot = "{root}"\nworkers = 1\n'
    head = b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 28_000
    with many_files(), Hayate(config=config) as server:
        attackers: list[socket.socket] = []

        def attack(until: int) -> int:
            """Opens connections until so many were given up."""
            for _ in range(2000):
                gone = sum(event != 0 for one in attackers for event in poll(one))
                if gone >= until:
                    return gone
                attackers.append(connect(server))
                with contextlib.suppress(OSError):
                    attackers[-1].sendall(head)
            raise AssertionError(f"{gone} of {len(attackers)} were given up")

        def poll(one: socket.socket) -> list[int]:
            poller = select.poll()
            poller.register(one, select.POLLIN)
            return [event for _, event in poller.poll(0)]

        before = attack(1)
        visitors = [connect(server) for _ in range(32)]
        for visitor in visitors:
            visitor.sendall(b"GET /plain.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\nCookie: " + b"a" * 1500)
        attack(before + 12)
        answers = []
        for visitor in visitors:
            with contextlib.suppress(OSError):
                visitor.sendall(b"\r\n\r\n")
            try:
                answers.append(visitor.recv(100)[:12])
            except OSError as error:
                answers.append(repr(error).encode())
        for one in attackers + visitors:
            one.close()
        assert answers == [b"HTTP/1.1 200"] * 32


@pytest.mark.parametrize("line", [b"X: y\r\n", b"X: %s\r\n" % (b"y" * 900)], ids=["short lines", "long lines"])
def test_a_head_in_segments_of_a_byte(hayate_command, tmp_path, line) -> None:
    """Processor time grows with what came, not with its square: one head of 40 KB costs about what 20 of 2 KB do."""
    root = site.make(tmp_path)
    config = f'[limits]\nhead_size = "100K"\nheader_count = 10000\nheader_timeout = "300s"\n[[app]]\nroot = "{root}"\nworkers = 1\n'
    directory = temporary_directory("heads")
    path = str(directory / "http.sock")
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, directory)
        server = stack.enter_context(Hayate(config=config, args=["--listen", f"unix:{path}"]))
        front = server.front

        def cost(size: int, heads: int) -> int:
            before = cpu(front)
            for _ in range(heads):
                head = b"GET /plain.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
                head += line * ((size - len(head)) // len(line)) + b"\r\n"
                with socket.socket(socket.AF_UNIX) as s:
                    s.settimeout(60)
                    s.connect(path)
                    for i in range(len(head)):
                        s.send(head[i : i + 1])
                        # Each by itself: what is not read yet would else be read with the next one.
                        while unread(s):
                            pass
                    received = b""
                    while block := s.recv(65536):
                        received += block
                    assert received.endswith(b"thirty-two letters")
            return cpu(front) - before

        cost(2 << 10, 2)
        many, one = cost(2 << 10, 20), cost(40 << 10, 1)
        assert one < 3 * many, f"{one / 1e6:.0f} ms for one head, {many / 1e6:.0f} ms for as many bytes in 20"


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_body_in_chunks_of_a_byte_is_written_in_blocks(hayate_command, tmp_path, method) -> None:
    """Nobody calls the kernel, or wakes anybody, for each chunk: neither the front nor the script that reads it."""
    root = site.make(tmp_path)
    with Hayate(root, workers=1) as server, connect(server) as s:
        others_are_served(server)
        worker = server.status()["apps"][0]["workers"][0]["pid"]
        before = written(server), turns(server.front), turns(worker)
        size = 400_000
        head = f"{method} /count.php HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        s.settimeout(120)
        s.sendall(head.encode())
        for _ in range(size // 10_000):
            s.sendall(b"1\r\nx\r\n" * 10_000)
        s.sendall(b"0\r\n\r\n")
        received = b""
        while block := s.recv(65536):
            received += block
        assert received.endswith(str(size).encode()), received
        after = written(server), turns(server.front), turns(worker)
        writes, of_front, of_worker = (now - then for now, then in zip(after, before, strict=True))
        assert max(writes, of_front, of_worker) < size // 200, (writes, of_front, of_worker)


def test_a_trickled_body_does_not_hold_a_worker_that_others_wait_for(hayate_command, tmp_path) -> None:
    root = site.make(tmp_path)
    with Hayate(config=f'[[app]]\nroot = "{root}"\nworkers = 2\nrequest_buffering = false\n') as server:
        trickle = connect(server)
        trickle.sendall(b"PUT /count.php HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 10_000)
        done = threading.Event()

        def drip() -> None:
            with contextlib.suppress(OSError):
                while not done.wait(0.3):
                    trickle.sendall(b"x")

        dripping = threading.Thread(target=drip, daemon=True)
        dripping.start()
        try:
            # While nobody else wants its worker, it may take its time.
            time.sleep(4)
            others_are_served(server)
            assert dripping.is_alive()
            sleeper = threading.Thread(target=lambda: requests.get(f"{server.url}/hold.php?go={tmp_path}/go", timeout=300))
            sleeper.start()
            # One worker is held until this is over, the other one waits for the body.
            assert wait_until(lambda: [w["state"] for w in server.status()["apps"][0]["workers"]] == ["serving"] * 2)
            others_are_served(server, 1)
            assert wait_until(lambda: not dripping.is_alive()), "the trickle goes on"
        finally:
            done.set()
            trickle.close()
            (tmp_path / "go").touch()
        sleeper.join()


@contextlib.contextmanager
def full_disk(directory: pathlib.Path) -> Iterator[None]:
    """A file system of its own, on which a megabyte is left."""
    with disk.small(directory, "2m"):
        (directory / "ballast").write_bytes(b"x" * (1 << 20))
        yield


@pytest.mark.parametrize("full", ["quota", "no directory", "disk"])
def test_slow_readers_without_room_for_temporary_files_hold_no_worker(hayate_command, tmp_path, full) -> None:
    root = site.make(tmp_path)
    limits = '[limits]\ntemp_size = "1M"\n' if full == "quota" else ""
    env = {} if full == "quota" else {"TMPDIR": str(tmp_path / "temporary")}
    config = f'{limits}[[app]]\nroot = "{root}"\nworkers = 2\n'
    disk = full_disk(tmp_path / "temporary") if full == "disk" else contextlib.nullcontext()
    with disk, Hayate(config=config, env=env) as server:
        slow = [connect(server, buffer=4096) for _ in range(40)]
        for s in slow:
            s.sendall(b"GET /large.php?mb=6 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        others_are_served(server, 10)
        assert server.logged("a slow client was cut off")
        for s in slow:
            s.close()
        others_are_served(server)


def test_ordinary_downloads_without_room_for_temporary_files_are_whole(hayate_command, tmp_path) -> None:
    root = site.make(tmp_path)
    with Hayate(root, workers=2, env={"TMPDIR": str(tmp_path / "missing")}) as server:
        sizes: list[int] = []

        def size_of_one() -> tuple[int, float]:
            """How much came, and for how long this client took nothing, which on a busy machine is not its own will."""
            size, paused, last = 0, 0.0, time.monotonic()
            with contextlib.suppress(requests.RequestException):
                with requests.get(server.url + "/large.php?mb=6", stream=True, timeout=120) as answer:
                    for piece in answer.iter_content(65536):
                        size += len(piece)
                        time.sleep(0.002)
                        paused, last = max(paused, time.monotonic() - last), time.monotonic()
            return size, max(paused, time.monotonic() - last)

        def download() -> None:
            # Who takes nothing for a second is cut off, and asks again.
            for _ in range(20):
                size, paused = size_of_one()
                if size == 6 << 20 or paused < 0.5:
                    break
            sizes.append(size)

        readers = [threading.Thread(target=download) for _ in range(20)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        assert sizes == [6 << 20] * 20, sizes


def test_uploads_beyond_the_quota_of_temporary_files(hayate_command, tmp_path) -> None:
    root = site.make(tmp_path)
    limits = '[limits]\ntemp_size = "1M"\ntemp_size_per_client = "600K"\n'
    with Hayate(config=f'{limits}[[app]]\nroot = "{root}"\nworkers = 2\n') as server:
        first = connect(server)
        first.sendall(b"POST /count.php HTTP/1.1\r\nHost: a\r\nContent-Length: 500001\r\nConnection: close\r\n\r\n" + b"x" * 500_000)
        assert wait_until(lambda: in_temporary_files(server) >= 400_000)
        # The same client, while its first upload goes on.
        assert requests.post(server.url + "/count.php", data=b"x" * 300_000, timeout=30).status_code == 503
        assert server.logged("temp_size_per_client is reached")
        assert requests.post(server.url + "/count.php", data=b"x" * 20_000, timeout=30).text == "20000"
        first.sendall(b"x")
        received = b""
        while block := first.recv(65536):
            received += block
        assert received.endswith(b"500001")
        # It has given back what it held.
        assert requests.post(server.url + "/count.php", data=b"x" * 300_000, timeout=30).text == "300000"
        first.close()


def test_the_quota_of_temporary_files_is_one_for_all_clients(hayate_command, tmp_path) -> None:
    """Three clients, each with less than it may have alone."""
    root = site.make(tmp_path)
    limits = '[limits]\ntemp_size = "1M"\ntemp_size_per_client = "600K"\n'
    with Hayate(config=f'{limits}[[app]]\nroot = "{root}"\nworkers = 2\n') as server, contextlib.ExitStack() as stack:

        def begin(client: int, sent: int) -> socket.socket:
            s = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 30, (f"127.0.0.{client}", 0)))
            head = b"POST /count.php HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
            with contextlib.suppress(ConnectionError):
                s.sendall(head % (sent + 1) + b"x" * sent)
            return s

        def answer(s: socket.socket) -> bytes:
            s.sendall(b"x")
            received = b""
            with contextlib.suppress(ConnectionError):
                while block := s.recv(65536):
                    received += block
            return received

        first = begin(2, 500_000)
        assert wait_until(lambda: in_temporary_files(server) >= 400_000)
        second = begin(3, 500_000)
        assert wait_until(lambda: in_temporary_files(server) >= 900_000)
        third = begin(4, 300_000)
        assert server.logged("limits.temp_size is reached")
        assert third.recv(65536).startswith(b"HTTP/1.1 503 ")
        assert answer(begin(4, 20_000)).endswith(b"20001"), "what needs no file goes on"
        assert answer(first).endswith(b"500001") and answer(second).endswith(b"500001")
        # They have given back what they held.
        assert wait_until(lambda: in_temporary_files(server) == 0)
        assert answer(begin(4, 300_000)).endswith(b"300001")


def test_a_quick_beginning_is_no_credit_for_a_body(hayate_command, tmp_path) -> None:
    root = site.make(tmp_path)
    limits = '[limits]\nbody_timeout = "2s"\n'
    with Hayate(config=f'{limits}[[app]]\nroot = "{root}"\nworkers = 1\n') as server, connect(server) as slow:
        slow.sendall(b"POST /count.php HTTP/1.1\r\nHost: a\r\nContent-Length: 1000100\r\n\r\n" + b"x" * 1_000_000)
        assert wait_until(lambda: in_temporary_files(server) >= 900_000)
        with pytest.raises(OSError):
            # At the rate of what came first this would last for half an hour.
            for _ in range(100):
                slow.sendall(b"x")
                time.sleep(0.3)
        assert wait_until(lambda: in_temporary_files(server) == 0)


def test_uploads_that_fill_the_temporary_space_and_wait_give_way(hayate_command, tmp_path) -> None:
    root = site.make(tmp_path)
    limits = '[limits]\ntemp_size = "16M"\ntemp_size_per_client = "16M"\n'
    with Hayate(config=f'{limits}[[app]]\nroot = "{root}"\nworkers = 2\n') as server, connect(server) as parked:
        parked.sendall(b"POST /count.php HTTP/1.1\r\nHost: a\r\nContent-Length: 16700000\r\n\r\n" + b"x" * 16_500_000)
        assert wait_until(lambda: in_temporary_files(server) >= 16_400_000)
        done = threading.Event()

        def drip() -> None:
            """Faster than body_rate."""
            with contextlib.suppress(OSError):
                while not done.wait(0.1):
                    parked.sendall(b"x" * 100)

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            upload = lambda: requests.post(server.url + "/count.php", data=b"x" * 1_000_000, timeout=30)
            assert upload().status_code == 503
            assert wait_until(lambda: upload().text == "1000000", interval=0.2), "the space is held on to"
            assert wait_until(lambda: not dripping.is_alive())
        finally:
            done.set()
            dripping.join()


def test_who_leaves_behind_pipelined_requests_is_forgotten(hayate_command, tmp_path) -> None:
    root = site.make(tmp_path)
    with Hayate(config=f'[[app]]\nroot = "{root}"\nworkers = 1\nqueue_timeout = "5m"\nrequest_timeout = "5m"\n') as server:
        hold = threading.Thread(target=requests.get, args=(f"{server.url}/hold.php?go={tmp_path}/go",), kwargs={"timeout": 300})
        hold.start()
        assert wait_until(lambda: server.status()["apps"][0]["workers"][0]["state"] == "serving")

        def waiting() -> int:
            return server.status()["apps"][0]["queue"]

        try:
            for reset in (True, False):
                left = [connect(server) for _ in range(8)]
                for client in left:
                    client.sendall(b"GET /ok.php HTTP/1.1\r\nHost: a\r\n\r\n" + b"GET /plain.txt HTTP/1.1\r\nHost: a\r\n\r\n" * 2000)
                assert wait_until(lambda: waiting() == 8)
                for client in left:
                    if reset:
                        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    client.close()
                assert wait_until(lambda: waiting() == 0), f"requests of nobody wait, {reset=}"
            # Who has said all and waits is there.
            with connect(server) as client:
                client.sendall(b"GET /ok.php?x HTTP/1.1\r\nHost: a\r\n\r\n" + b"GET /plain.txt HTTP/1.1\r\nHost: a\r\n\r\n" * 2000)
                client.shutdown(socket.SHUT_WR)
                assert wait_until(lambda: waiting() == 1)
                time.sleep(1.5)
                assert waiting() == 1
                (tmp_path / "go").touch()
                got = bytearray()
                while block := client.recv(1 << 16):
                    got += block
                assert got.count(b"HTTP/1.1 200 ") == 2001
        finally:
            (tmp_path / "go").touch()
            hold.join()
