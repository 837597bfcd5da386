"""HTTP/2: what connections make the server keep for them has a limit, all together: answers that nobody takes, and heads."""

from __future__ import annotations

import contextlib
import pathlib
import re
import time
from collections.abc import Callable, Iterator

import pytest
import requests

from lib import over, site
from lib.process import free_port
from lib.servers import Hayate

from .h2 import DATA, END_HEADERS, HEADERS, SETTINGS, WINDOW_UPDATE, Raw, frame

SHUT = b"\0\x04\0\0\0\0"
"""SETTINGS that let no answer's body come."""
STREAMS = range(1, 257, 2)


class Measured(Hayate):
    """With metrics on a port of their own."""

    metrics_port: int

    def metric(self, name: str) -> int:
        text = requests.get(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=60).text
        found = re.search(rf"(?m)^{name} (\d+)$", text)
        assert found, f"{name} is not among the metrics:\n{text}"
        return int(found[1])


@contextlib.contextmanager
def started(place: pathlib.Path, limits: str = "", threads: int = 2) -> Iterator[Measured]:
    root = site.make(place)
    (root / "small.bin").write_bytes(b"s" * (64 << 10))
    (root / "large.bin").write_bytes(b"l" * (1 << 20))
    metrics = free_port()
    config = f'http2_prior_knowledge = true\nfront_threads = {threads}\nmetrics = "127.0.0.1:{metrics}"\n[limits]\n{limits}\n[[app]]\nroot = "{root}"\nworkers = 2\n'
    with Measured(config=config) as server:
        server.metrics_port = metrics
        assert requests.get(server.url + "/small.bin", timeout=60).content == b"s" * (64 << 10)
        yield server


def resident(server: Hayate) -> int:
    """Bytes."""
    text = pathlib.Path(f"/proc/{server.front}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", text)[1]) << 10


def most(server: Hayate) -> int:
    """Bytes that it ever was large."""
    text = pathlib.Path(f"/proc/{server.front}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", text)[1]) << 10


def grown(server: Hayate, connections: int, attack: Callable[[Raw], object]) -> int:
    """By how many bytes the front has grown when so many connections have done their part, at the most of several looks; others are served."""
    before, most = resident(server), 0
    opened: list[Raw] = []
    try:
        for _ in range(connections):
            opened.append(Raw(over.frames(("127.0.0.1", server.port)), SHUT))
            attack(opened[-1])
            most = max(most, resident(server))
        for i in range(3):
            assert requests.get(f"{server.url}/ok.php?{i}", timeout=60).text == f"ok {i}"
            most = max(most, resident(server))
    finally:
        for one in opened:
            one.sock.close()
    return most - before


def ask_for(path: str) -> Callable[[Raw], object]:
    def attack(one: Raw) -> None:
        one.send(b"".join(frame(HEADERS, 5, stream, one.head(path)) for stream in STREAMS))

    return attack


def first_bytes(one: Raw) -> None:
    """Of each file, which is read as a whole, one byte is wanted, and not taken."""
    heads = [one.head("/small.bin", ("range", "bytes=0-0")) for _ in STREAMS]
    one.send(b"".join(frame(HEADERS, 5, stream, head) for stream, head in zip(STREAMS, heads, strict=True)))


def all_but_the_last_byte(one: Raw) -> None:
    """All windows are as they are by default, 65,535 bytes, and each file has one more. That is not taken."""
    one.send(frame(SETTINGS, 0, 0, b"\0\x04\0\0\xff\xff") + frame(WINDOW_UPDATE, 0, 0, (1 << 30).to_bytes(4, "big")))
    ask_for("/small.bin")(one)
    come = 0
    while come < len(STREAMS) * 65535:
        come += len(one.until(lambda kind, *_: kind == DATA)[3])


def heads_made_of_little(one: Raw, streams: range = STREAMS) -> bytes:
    """One entry of the client's table, named again and again, is a head of 30 KB made of ten bytes; its body never comes."""
    fields = [("content-length", "10"), *[("x", "y" * 3900)] * 8]
    heads = [one.head("/echo.php", *fields, method="POST") for _ in streams]
    return b"".join(frame(HEADERS, END_HEADERS, stream, head) for stream, head in zip(streams, heads, strict=True))


def large_heads(one: Raw, streams: range = STREAMS) -> None:
    one.send(heads_made_of_little(one, streams))


def test_answers_that_nobody_takes_have_a_limit_together(hayate_command, tmp_path) -> None:
    with started(tmp_path, 'answer_memory = "8M"') as server:
        more = grown(server, 12, ask_for("/small.bin"))
        assert more < 40 << 20, f"{more >> 20} MB"


def test_a_file_is_not_read_ahead_of_the_window(hayate_command, tmp_path) -> None:
    with started(tmp_path) as server:
        more = grown(server, 10, ask_for("/large.bin"))
        assert more < 40 << 20, f"{more >> 20} MB"
        assert "answer_memory is reached" not in server.log()
        # It comes as the window opens.
        one = Raw(over.frames(("127.0.0.1", server.port)), SHUT)
        one.request(1, "/large.bin")
        assert one.status(1) == "200"
        one.send(frame(WINDOW_UPDATE, 0, 1, (1 << 20).to_bytes(4, "big")) + frame(WINDOW_UPDATE, 0, 0, (1 << 20).to_bytes(4, "big")))
        came = 0
        while came < 1 << 20:
            came += len(one.until(lambda kind, *_: kind == DATA)[3])
        one.sock.close()
        assert came == 1 << 20


@pytest.mark.parametrize("attack", [first_bytes, all_but_the_last_byte])
def test_a_byte_that_nobody_takes_does_not_keep_its_file(hayate_command, tmp_path, attack) -> None:
    with started(tmp_path, threads=1) as server:
        more = grown(server, 12, attack)
        # Each of the 1536 answers would be 64 KB.
        assert more < 40 << 20, f"{more >> 20} MB"


def test_a_window_that_opens_byte_by_byte_gets_few_frames(hayate_command, tmp_path) -> None:
    with started(tmp_path, threads=1) as server:
        one = Raw(over.frames(("127.0.0.1", server.port)), SHUT)
        wide = (1 << 20).to_bytes(4, "big")
        one.send(frame(WINDOW_UPDATE, 0, 0, (1 << 30).to_bytes(4, "big")))
        # What nobody reads fills the socket, so what follows waits.
        for stream in range(1, 41, 2):
            one.request(stream, "/large.bin")
            one.send(frame(WINDOW_UPDATE, 0, stream, wide))
        one.request(101, "/small.bin")
        time.sleep(1)
        for _ in range(60):
            one.send(frame(WINDOW_UPDATE, 0, 101, (1).to_bytes(4, "big")))
            time.sleep(0.005)
        pieces: list[int] = []
        while sum(pieces) < 60:
            got = one.until(lambda kind, flags, stream, payload: kind == DATA and stream == 101)
            pieces.append(len(got[3]))
        one.sock.close()
        assert len(pieces) < 20, f"{pieces}"


def test_whole_heads_have_a_limit_together(hayate_command, tmp_path) -> None:
    with started(tmp_path, 'answer_memory = "8M"') as server:
        more = grown(server, 14, large_heads)
        assert more < 40 << 20, f"{more >> 20} MB"
        assert server.logged("answer_memory is reached")


def test_heads_that_come_at_one_time_have_it_too(hayate_command, tmp_path) -> None:
    """What is ready to be read is not read before there is room for what it makes."""
    with started(tmp_path, 'answer_memory = "8M"') as server:
        before = resident(server)
        opened = [Raw(over.frames(("127.0.0.1", server.port)), SHUT) for _ in range(60)]
        sent = [heads_made_of_little(one) for one in opened]
        for one, heads in zip(opened, sent, strict=True):
            one.send(heads)
        assert server.logged("answer_memory is reached")
        assert requests.get(f"{server.url}/ok.php?1", timeout=60).text == "ok 1"
        # 230 MB of heads; a connection of each thread is read before it is known how much that was.
        more = most(server) - before
        for one in opened:
            one.sock.close()
        assert more < 40 << 20, f"{more >> 20} MB"


def test_a_client_that_takes_its_answers_is_not_cut_for_others_that_do_not(hayate_command, tmp_path) -> None:
    with started(tmp_path, 'answer_memory = "8M"', threads=4) as server:
        # One small answer each, of an address each: more threads than the others below have connections hold nothing but these.
        innocents = [Raw(over.frames(("127.0.0.1", server.port), source_address=(f"127.0.0.{i}", 0)), SHUT) for i in range(2, 10)]
        for one in innocents:
            one.request(1, "/small.bin")
            assert one.status(1) == "200"
        reader = Raw(over.frames(("127.0.0.1", server.port)), SHUT)
        reader.request(1, "/large.bin")
        assert reader.status(1) == "200"
        grown(server, 4, large_heads)
        assert server.logged("answer_memory is reached")
        for one in innocents:
            one.request(3, "/plain.txt")
            assert one.status(3) == "200"
            one.sock.close()
        step = (1 << 14).to_bytes(4, "big")
        for _ in range(64):
            reader.send(frame(WINDOW_UPDATE, 0, 1, step) + frame(WINDOW_UPDATE, 0, 0, step))
            came = 0
            while came < 1 << 14:
                came += len(reader.until(lambda kind, *_: kind == DATA)[3])
        reader.sock.close()


def test_who_holds_most_of_all_is_cut_first_on_whichever_threads(hayate_command, tmp_path) -> None:
    with started(tmp_path, 'answer_memory = "8M"', threads=4) as server:

        def connect(addr: str) -> Raw:
            return Raw(over.frames(("127.0.0.1", server.port), source_address=(addr, 0)), SHUT)

        # On its thread it holds most, 2 MB; of all threads together the others' owner does, in connections of 240 KB.
        busy = connect("127.0.0.2")
        large_heads(busy, range(1, 129, 2))
        hoard = [connect("127.0.0.3") for _ in range(40)]
        for one in hoard:
            large_heads(one, range(1, 17, 2))
        assert server.logged("answer_memory is reached")
        time.sleep(1)
        busy.request(201, "/plain.txt")
        assert busy.status(201) == "200"
        left = server.metric("hayate_answer_memory_bytes")
        assert 2 << 20 < left <= 8 << 20, f"{left}"
        for one in [busy, *hoard]:
            one.sock.close()


def test_what_a_request_takes_by_itself_is_counted(hayate_command, tmp_path) -> None:
    """Of 32 bytes that nobody takes, thousands of times, the answers are the least."""
    with started(tmp_path) as server:
        before, opened = resident(server), []
        for _ in range(24):
            opened.append(Raw(over.frames(("127.0.0.1", server.port)), SHUT))
            ask_for("/plain.txt")(opened[-1])
            assert opened[-1].status(STREAMS[-1]) == "200"
        more, counted = resident(server) - before, server.metric("hayate_answer_memory_bytes")
        assert more > 10 << 20
        assert counted > more // 2, f"{counted} of {more} bytes"
        for one in opened:
            one.sock.close()


def test_what_is_held_is_among_the_metrics_and_said_before_anybody_is_cut(hayate_command, tmp_path) -> None:
    with started(tmp_path, 'answer_memory = "8M"', threads=1) as server:
        one = Raw(over.frames(("127.0.0.1", server.port)), SHUT)
        large_heads(one, range(1, 101, 2))
        two = Raw(over.frames(("127.0.0.1", server.port)), SHUT)
        large_heads(two)
        assert server.logged("three quarters of limits.answer_memory")
        assert server.metric("hayate_answer_memory_bytes") > 6 << 20
        assert server.metric("hayate_answer_memory_limit_bytes") == 8 << 20
        assert "answer_memory is reached" not in server.log()
        for one in (one, two):
            one.sock.close()
