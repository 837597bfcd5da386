"""Visitors cannot use up the server's open files: what is needed to command it, to start workers, and to serve others is left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import resource
import socket
import threading
import time

import pytest
import requests

from lib import over, site
from lib.process import wait_until
from lib.servers import Hayate
from protocol.h2 import DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, WINDOW_UPDATE, Raw, frame

SHUT = b"\0\x04\0\0\0\0"
"""SETTINGS that let no answer's body come."""
STREAMS = range(1, 257, 2)
LARGE = b"l" * 200_000


class Few(Hayate):
    """With few open files."""

    def command(self):
        return ["/usr/bin/prlimit", "--nofile=200:200", *super().command()]


def few(place: pathlib.Path) -> Few:
    root = site.make(place)
    (root / "small.bin").write_bytes(b"small")
    (root / "large.bin").write_bytes(LARGE)
    (root / "accel_large.php").write_text("<?php header('X-Accel-Redirect: /large.bin');")
    (root / "sendfile_large.php").write_text("<?php header('X-Sendfile: ' . __DIR__ . '/large.bin');")
    return Few(config=f'http2_prior_knowledge = true\n[[app]]\nroot = "{root}"\nworkers = 2\nsendfile_roots = []\n')


def test_a_flood_of_connections_leaves_open_files_for_commands_and_workers(hayate_command, tmp_path) -> None:
    with Few(site.make(tmp_path), workers=2) as server:
        before = requests.get(server.url + "/pid.php", timeout=60).text
        flood = []
        try:
            for _ in range(400):
                one = socket.socket()
                one.setblocking(False)
                one.connect_ex(("127.0.0.1", server.port))
                flood.append(one)
            time.sleep(1)
            assert len(os.listdir(f"/proc/{server.front}/fd")) < 160
            os.kill(int(before), 9)
            assert server.reload().returncode == 0, server.log_tail()
        finally:
            for one in flood:
                one.close()

        def answers() -> bool:
            try:
                return requests.get(server.url + "/ok.php?x", timeout=60).text == "ok x"
            except requests.RequestException:
                return False

        assert wait_until(answers)
        assert "cannot be accepted" not in server.log()


@pytest.mark.plain("it asks on a connection that was there before")
def test_a_file_for_which_no_descriptor_is_left_is_not_said_to_be_missing(hayate_command, tmp_path) -> None:
    with few(tmp_path) as server, requests.Session() as visitor:
        assert visitor.get(server.url + "/small.bin", timeout=60).content == b"small"
        front = server.front
        before = resource.prlimit(front, resource.RLIMIT_NOFILE, (3, 200))
        # What was found is remembered for a second.
        time.sleep(1.1)
        answers = {visitor.get(f"{server.url}/{path}", timeout=60).status_code for path in ("small.bin", "large.bin")}
        resource.prlimit(front, resource.RLIMIT_NOFILE, before)
        assert answers == {503}
        assert server.logged("no descriptor, or no memory, is left to open a file with")
        assert visitor.get(server.url + "/small.bin", timeout=60).content == b"small"


def attacker(server: Hayate) -> Raw:
    """At an address of its own."""
    return Raw(over.frames(("127.0.0.1", server.port), source_address=("127.0.0.2", 0)), SHUT)


def upload_in_part(one: Raw, done: threading.Event) -> None:
    """On each stream 33,000 bytes of 40,000, as far as the connection's window lets them."""
    window = 65535
    for stream in STREAMS:
        head = one.head("/count.php", ("content-length", "40000"), method="POST")
        one.send(frame(HEADERS, END_HEADERS, stream, head))
        for size in (16384, 16384, 232):
            while window < size:
                with contextlib.suppress(TimeoutError):
                    got = one.until(lambda kind, *_: kind == WINDOW_UPDATE)
                    if got is None or done.is_set():
                        return
                    window += int.from_bytes(got[3], "big") if got[2] == 0 else 0
            window -= size
            one.send(frame(DATA, 0, stream, bytes(size)))


def test_streams_of_one_connection_leave_open_files_for_others(hayate_command, tmp_path) -> None:
    done = threading.Event()
    with few(tmp_path) as server:
        # Asked before, for it may not answer then.
        front = server.front
        reader, writer = attacker(server), attacker(server)
        # Each has its answer or waits for it; what it sends is read meanwhile.
        sending = threading.Thread(target=upload_in_part, args=(writer, done))
        try:
            sending.start()
            reader.send(b"".join(frame(HEADERS, 5, stream, reader.head("/large.bin")) for stream in STREAMS))
            time.sleep(3)
            assert len(os.listdir(f"/proc/{front}/fd")) < 160
            for i in range(3):
                assert requests.get(server.url + "/small.bin", timeout=60).content == b"small"
                assert requests.get(server.url + "/large.bin", timeout=60).content == LARGE
                assert requests.get(f"{server.url}/ok.php?{i}", timeout=60).text == f"ok {i}"
                assert requests.post(server.url + "/count.php", data=LARGE, timeout=60).text == str(len(LARGE))
                os.kill(int(requests.get(server.url + "/pid.php", timeout=60).text), 9)
                assert server.reload().returncode == 0, server.log_tail()
            assert "cannot be accepted" not in server.log()
        finally:
            done.set()
            for one in (reader, writer):
                with contextlib.suppress(OSError):
                    one.sock.shutdown(socket.SHUT_RDWR)
                one.sock.close()
            sending.join(timeout=60)


def test_more_files_than_may_be_open_all_come_whole(hayate_command, tmp_path) -> None:
    httpx = pytest.importorskip("httpx", reason="httpx is not installed (scripts/setup --test)")

    verify = over.protocol == over.PLAIN or str(over.certificate()[0])

    async def fetch(url: str) -> list[bytes]:
        limits = httpx.Limits(max_connections=1)
        async with httpx.AsyncClient(http1=False, http2=True, limits=limits, timeout=60, verify=verify) as one:
            got = await asyncio.gather(*(one.get(f"{url}/large.bin?{i}") for i in range(100)))
        assert {(answer.status_code, answer.http_version) for answer in got} == {(200, "HTTP/2")}
        return [answer.content for answer in got]

    with few(tmp_path) as server:
        assert asyncio.run(fetch(server.url)) == [LARGE] * 100


def ask(one: Raw, path: str, streams) -> None:
    one.send(b"".join(frame(HEADERS, 5, stream, one.head(path)) for stream in streams))


def heads(one: Raw, streams) -> None:
    """All of them come, with status 200."""
    assert {stream: one.status(stream) for stream in streams} == dict.fromkeys(streams, "200")


def opened(*streams: int) -> bytes:
    """Frames that let all of these streams' bodies come, of a file of LARGE."""
    room = len(LARGE).to_bytes(4, "big")
    return b"".join(frame(WINDOW_UPDATE, 0, 0, room) + frame(WINDOW_UPDATE, 0, stream, room) for stream in streams)


def bodies(one: Raw, streams) -> dict[int, bytes | None]:
    """What comes on each stream; None for one that was reset."""
    came: dict[int, bytes | None] = {stream: b"" for stream in streams}
    left = set(streams)
    while left:
        got = one.until(lambda kind, _, stream, __: kind in (DATA, RST_STREAM) and stream in left)
        assert got is not None
        kind, flags, stream, data = got
        came[stream] = None if kind == RST_STREAM else came[stream] + data
        if kind == RST_STREAM or flags & END_STREAM:
            left.remove(stream)
    return came


@pytest.mark.parametrize("path", ["/large.bin", "/accel_large.php", "/sendfile_large.php"])
def test_no_answer_waits_for_the_file_of_another(hayate_command, tmp_path, path: str) -> None:
    """Far more files than may be open, of which the client takes none: all heads come, and the last file comes first."""
    with few(tmp_path) as server:
        front = server.front
        one = Raw(over.frames(("127.0.0.1", server.port)), SHUT)
        ask(one, path, STREAMS)
        heads(one, STREAMS)
        # Longer than anything waits for a file that is to be closed.
        time.sleep(6)
        assert len(os.listdir(f"/proc/{front}/fd")) < 100
        one.send(opened(STREAMS[-1]))
        assert bodies(one, STREAMS[-1:]) == {STREAMS[-1]: LARGE}
        one.send(opened(*STREAMS[:-1]))
        assert set(bodies(one, STREAMS[:-1]).values()) == {LARGE}
        one.sock.close()


def test_a_file_that_is_removed_once_it_is_sent_comes_whole(hayate_command, tmp_path) -> None:
    """As scripts do with what they have made for one client; although others' files need its descriptor."""
    with few(tmp_path) as server:
        (tmp_path / "site/made.bin").write_bytes(LARGE)
        (tmp_path / "site/sendfile_made.php").write_text("<?php header('X-Sendfile: ' . __DIR__ . '/made.bin');")
        one, two = (Raw(over.frames(("127.0.0.1", server.port)), SHUT) for _ in range(2))
        made = STREAMS[:3]
        ask(one, "/sendfile_made.php", made)
        heads(one, made)
        (tmp_path / "site/made.bin").unlink()
        ask(two, "/large.bin", STREAMS)
        heads(two, STREAMS)
        assert len(os.listdir(f"/proc/{server.front}/fd")) < 100
        one.send(opened(*made))
        assert set(bodies(one, made).values()) == {LARGE}
        two.send(opened(*STREAMS))
        assert set(bodies(two, STREAMS).values()) == {LARGE}
        assert "broke off" not in server.log()
        for connection in (one, two):
            connection.sock.close()


def test_more_than_a_thousand_files_are_opened_again_at_one_time(hayate_command, tmp_path) -> None:
    """And small ones come meanwhile."""
    with few(tmp_path) as server:
        many = [Raw(over.frames(("127.0.0.1", server.port)), SHUT) for _ in range(12)]
        for one in many:
            ask(one, "/large.bin", STREAMS)
            heads(one, STREAMS)
        for one in many:
            one.send(opened(*STREAMS))
        assert requests.get(server.url + "/small.bin", timeout=60).content == b"small"
        for one in many:
            assert set(bodies(one, STREAMS).values()) == {LARGE}
            one.sock.close()


def test_a_file_that_is_replaced_is_sent_as_it_was_or_breaks_off(hayate_command, tmp_path) -> None:
    with few(tmp_path) as server:
        one = Raw(over.frames(("127.0.0.1", server.port)), SHUT)
        ask(one, "/large.bin", STREAMS)
        heads(one, STREAMS)
        (tmp_path / "site/new.bin").write_bytes(b"n" * len(LARGE))
        (tmp_path / "site/new.bin").rename(tmp_path / "site/large.bin")
        one.send(opened(*STREAMS))
        came = bodies(one, STREAMS)
        whole = [stream for stream, body in came.items() if body is not None]
        assert {came[stream] for stream in whole} == {LARGE}, "those that were open yet"
        assert 0 < len(whole) < len(STREAMS)
        assert server.logged("broke off: the file was replaced"), server.log_tail()
        assert requests.get(server.url + "/large.bin", timeout=60).content == b"n" * len(LARGE)
        one.sock.close()
