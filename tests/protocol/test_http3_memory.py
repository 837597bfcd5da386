"""What connections keep of answers, bodies and words that are not whole counts (`answer_memory`) until it is gone, whatever clients confirm meanwhile:
HTTP/3 first, and what HTTP/1 and HTTP/2 keep of the same kind."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import random
import socket
import time
from collections.abc import Iterator

import pytest
import requests

from lib.process import wait_until
from lib.servers import free_port
from lib.tls import TlsHayate, connect, context

from .h2 import HEADERS, WINDOW_UPDATE, Raw
from .h2 import frame as h2_frame
from .h3 import PATIENCE, Http3, frame, literally
from .test_http3 import EXCESSIVE_LOAD, HEAD, client, connections, memory, ports, text
from .test_http3 import mark as mark
from .test_http3 import place as place

STEP = 64 << 10
"""Threads tell each other what they hold in such steps."""
LARGE = 900 << 10


@contextlib.contextmanager
def started(place: pathlib.Path, limits: str = "", top: str = "") -> Iterator[TlsHayate]:
    (place / "site" / "large.bin").write_bytes(b"l" * LARGE)
    (place / "site" / "some.bin").write_bytes(b"s" * (100 << 10))
    (place / "site" / "huge.bin").write_bytes(b"h" * (4 << 20))
    config = text(place, place / "site", limits=limits, top=f'metrics = "127.0.0.1:{{metrics}}"\n{top}', idle="120s")
    with TlsHayate(config, {**ports(), "metrics": free_port()}) as server:
        yield server


def held(server: TlsHayate) -> int:
    """Bytes that count as held."""
    said = requests.get(f"http://127.0.0.1:{server.ports['metrics']}/metrics", timeout=60).text
    return int(re.search(r"(?m)^hayate_answer_memory_bytes (\d+)$", said)[1])


def opens_by(one: Http3, step: int) -> None:
    """From now on each datagram of this client lets so many bytes more of each answer come."""
    from aioquic.quic.packet import QuicFrameType

    def write(builder, space, stream) -> None:
        if stream.stream_id % 4 or stream.is_finished:
            return
        stream.max_stream_data_local = stream.receiver.highest_offset + step
        buf = builder.start_frame(QuicFrameType.MAX_STREAM_DATA, capacity=17, handler=lambda *_: None)
        buf.push_uint_var(stream.stream_id)
        buf.push_uint_var(stream.max_stream_data_local)

    one.quic._write_stream_limits = write


def test_who_opens_a_window_byte_by_byte_has_the_stream_reset(hayate_command, place) -> None:
    """quinn keeps each piece by itself, and goes through all of them for each that it sends."""
    with started(place) as server, client(server, place, max_data=1 << 26, max_stream_data=1) as one:
        opens_by(one, 1)
        stream = one.begin("/large.bin")
        deadline = time.monotonic() + PATIENCE
        while not one.over(stream):
            one.quic.send_ping(1)
            one.step(0.002)
            # Of a stream that is over aioquic knows nothing.
            seen = one.quic._streams[stream].receiver.highest_offset if stream in one.quic._streams else 0
            assert seen < 1000 and time.monotonic() < deadline, f"{seen} bytes came one by one"
        assert one.answers[stream].reset == EXCESSIVE_LOAD
        opens_by(one, 1 << 20)
        assert one.get().status == 200


def test_a_window_that_is_only_small_is_kept_to(hayate_command, place) -> None:
    with started(place) as server, client(server, place, max_data=1 << 26, max_stream_data=600) as one:
        opens_by(one, 600)
        stream = one.begin("/some.bin")
        deadline = time.monotonic() + PATIENCE
        while not one.over(stream):
            assert time.monotonic() < deadline
            one.quic.send_ping(1)
            one.step(0.002)
        assert one.answers[stream].body == b"s" * (100 << 10)


def confirms_nothing(one: Http3) -> None:
    one.quic._write_ack_frame = lambda *_, **__: None


def confirms_all_but_the_beginning(one: Http3, stream: int) -> None:
    """Of packets that the client has, those with the first byte of this stream are not confirmed."""
    from aioquic import tls

    space = one.quic._spaces[tls.Epoch.ONE_RTT]
    handle, queue, first = one.quic._handle_stream_frame, space.ack_queue, [False]
    handlers = one.quic._QuicConnection__frame_handlers

    def look(context, frame_type, buf) -> None:
        begin = buf.tell()
        first[0] |= buf.pull_uint_var() == stream and not frame_type & 4
        buf.seek(begin)
        handle(context, frame_type, buf)

    for kind in range(8, 16):
        handlers[kind] = (look, handlers[kind][1])
    add = queue.add

    def unless_first(*args) -> None:
        if not first[0]:
            add(*args)
        first[0] = False

    queue.add = unless_first
    write = one.quic._write_ack_frame
    one.quic._write_ack_frame = lambda **args: write(**args) if len(queue) else None


def test_an_answer_counts_until_all_of_it_is_confirmed(hayate_command, place) -> None:
    """quinn keeps what follows a packet that was not confirmed, confirmed or not."""
    # Longer than a client on a busy machine may come to nothing.
    with started(place, 'write_timeout = "6s"\nwrite_rate = "100K"') as server:
        with client(server, place, max_data=1 << 26, max_stream_data=1 << 26) as one:
            stream = one.quic.get_next_available_stream_id()
            confirms_all_but_the_beginning(one, stream)
            began = time.monotonic()

            def too_late() -> bool:
                """A client on a busy machine may have been so slow that its time is over: write_timeout, from its beginning on."""
                return time.monotonic() > began + 5.5

            def has(stream: int, length: int) -> None:
                one.wait(lambda: one.over(stream) or too_late())
                assert too_late() or len(one.answers[stream].body) == length

            has(one.begin("/large.bin"), LARGE)
            for _ in range(3):
                if connections(server):
                    has(one.begin("/some.bin"), 100 << 10)
            assert held(server) > LARGE - STEP or too_late()
            # It has no longer for that than all of it may take, 9 s, and write_timeout, however much else it confirms. quinn's own word that it
            # is over may wait for room that there is not.
            while connections(server):
                assert time.monotonic() < began + PATIENCE, "it goes on"
                again = one.begin("/some.bin")
                deadline = time.monotonic() + 2
                while not one.over(again) and time.monotonic() < deadline:
                    one.step(0.1)
        assert held(server) < STEP


def test_one_answer_that_is_stopped_takes_no_other_off_the_account(hayate_command, place) -> None:
    with started(place) as server, client(server, place, max_data=1 << 26, max_stream_data=2 << 20) as one:
        # The first is stuck in its own window.
        one.quic._write_stream_limits = lambda **_: None
        taken = one.begin("/huge.bin")
        one.wait(lambda: len(one.answers[taken].body) > (2 << 20) - 5000)
        confirms_nothing(one)
        one.begin("/large.bin")
        one.step(0.5)
        deadline = time.monotonic() + PATIENCE
        while held(server) < LARGE - STEP:
            assert time.monotonic() < deadline, f"{held(server)} bytes count"
            one.step(0.1)
        one.quic.stop_stream(taken, 0x10C)
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline:
            one.step(0.1)
        assert held(server) > LARGE - STEP


def test_what_was_taken_counts_no_more(hayate_command, place) -> None:
    with started(place) as server, client(server, place, max_data=1 << 26, max_stream_data=1 << 26) as one:
        for _ in range(3):
            assert len(one.get("/huge.bin").body) == 4 << 20
        body = os.urandom(1 << 20)
        for _ in range(8):
            assert one.get("/count.php", "POST", body=body).body == b"%d" % len(body)
        for _ in range(300):
            assert one.get("/plain.txt").status == 200
        # What was sent last counts until the client has confirmed it.
        deadline = time.monotonic() + PATIENCE
        while held(server) >= STEP:
            assert time.monotonic() < deadline, f"{held(server)} bytes count"
            one.step(0.05)


def without_its_beginning(one: Http3, streams: list[int], size: int) -> None:
    """Sends so many bytes on each of these streams, of which the first never comes."""
    one.quic._loss._cc.congestion_window = 1 << 24
    one.quic._loss._pacer.next_send_time = lambda **_: None
    for stream in streams:
        one.quic.send_stream_data(stream, b"\x01")
    # It is lost, and nothing is heard that would have it sent again.
    assert one.quic.datagrams_to_send(now=time.time())
    for at in range(0, size, 8000):
        for stream in streams:
            one.quic.send_stream_data(stream, b"y" * min(8000, size - at))
        one.flush()
        time.sleep(0.003)


def test_what_nobody_can_read_yet_counts(hayate_command, place) -> None:
    with started(place) as server, client(server, place) as one:
        assert one.get().status == 200
        first = one.quic.get_next_available_stream_id()
        without_its_beginning(one, [first + 4 * i for i in range(4)], 100_000)
        deadline = time.monotonic() + PATIENCE
        while held(server) < 300_000:
            assert time.monotonic() < deadline, f"{held(server)} of 400,000 bytes count"
            time.sleep(0.05)


def hurries(one: Http3) -> None:
    """It sends as fast as it is let."""
    one.quic._loss._cc.congestion_window = 1 << 24
    one.quic._loss._pacer.next_send_time = lambda **_: None


def refused(one: Http3, size: int) -> None:
    """An upload that was refused before any of its body came, of which the client hears when all of that is under way."""
    stream = one.begin("/plain.txt", "POST", {"content-length": str(size)}, end=False)
    time.sleep(0.01)
    for at in range(0, size, 8000):
        one.send(stream, b"b" * min(8000, size - at), end=at + 8000 >= size)
        time.sleep(0.002)
    assert one.answer(stream).status == 405


def test_uploads_that_were_refused_count_no_more(hayate_command, place) -> None:
    """quinn has thrown away what came of them, and nobody has read it."""
    with started(place) as server, client(server, place) as one:
        hurries(one)
        for _ in range(8):
            refused(one, 100_000)
        assert one.get("/plain.txt").status == 200
        deadline = time.monotonic() + 5
        while held(server) >= STEP:
            assert time.monotonic() < deadline, f"{held(server)} bytes count"
            one.step(0.05)


def test_many_uploads_that_were_refused_do_not_end_the_connection(hayate_command, place) -> None:
    """12 MB of which nothing was read are no flood, one after the other."""
    with started(place) as server, client(server, place) as one:
        hurries(one)
        for _ in range(120):
            refused(one, 100_000)
        # Floods are looked for once a second.
        time.sleep(2.5)
        assert one.get("/plain.txt").status == 200


def test_nor_do_they_beside_a_request_that_lasts(hayate_command, place, mark) -> None:
    began, go = mark("refused-began"), mark("refused-go")
    with started(place) as server, client(server, place) as one:
        hurries(one)
        lasting = one.begin(f"/hold.php?began={began}&go={go}")
        one.wait(began.exists)
        for _ in range(120):
            refused(one, 100_000)
        time.sleep(2.5)
        go.touch()
        assert one.answer(lasting).body == b"held"


def test_who_has_sent_nothing_holds_nothing(hayate_command, place) -> None:
    with started(place) as server, contextlib.ExitStack() as stack:
        idle = [stack.enter_context(client(server, place)) for _ in range(200)]
        for one in idle:
            assert one.get("/plain.txt").status == 200

        def confirmed() -> bool:
            for one in idle:
                one.step(0.03)
            return held(server) < STEP

        assert wait_until(confirmed), held(server)


def test_streams_of_the_clients_own_wait_nowhere(hayate_command, place) -> None:
    """What precedes what came is missing: quinn would keep it, for whom nothing counts while no request is under way."""
    with started(place) as server, client(server, place) as one:
        assert one.get().status == 200
        first = one.quic.get_next_available_stream_id(is_unidirectional=True)
        without_its_beginning(one, [first, first + 4], 60_000)
        assert one.ended_for() == EXCESSIVE_LOAD


def test_windows_are_small_where_memory_is_short(hayate_command, place) -> None:
    """A client that came while there was enough is told nothing smaller; those that come now are."""
    with started(place, 'answer_memory = "4M"') as server, contextlib.ExitStack() as stack:
        early = stack.enter_context(client(server, place))
        assert early.quic._remote_max_data >= 1 << 20
        holders = [stack.enter_context(client(server, place, max_data=1 << 26, max_stream_data=1 << 26, source=f"127.0.0.{i}")) for i in range(2, 60)]
        for one in holders:
            confirms_nothing(one)
            one.begin("/large.bin")
            one.step(0.01)
            if held(server) > 5 << 19:
                break
        assert held(server) > 2 << 20
        late = stack.enter_context(client(server, place))
        assert late.quic._remote_max_data <= STEP
        # It gets through all the same.
        body = os.urandom(1 << 20)
        assert late.get("/count.php", "POST", body=body).body == b"%d" % len(body)


def test_trailers_that_do_not_end_count(hayate_command, place) -> None:
    with started(place) as server, client(server, place) as one:
        one.quic._loss._cc.congestion_window = 1 << 24
        head = literally([(":method", "POST"), *HEAD[1:3], (":path", "/count.php")])
        before = held(server)
        for _ in range(30):
            one.raw(head + frame(0, b"b") + frame(1, b"\0" * 60_000, length=60_001), end=False)
            one.step(0.01)
        deadline = time.monotonic() + PATIENCE
        while held(server) - before < 30 * 60_000:
            assert time.monotonic() < deadline, f"{held(server) - before} of 1,800,000 bytes count"
            one.step(0.05)


def test_a_refused_upload_that_goes_on_keeps_nothing_of_its_head(hayate_command, place) -> None:
    """It has its answer, and dribbles on."""
    with started(place) as server, contextlib.ExitStack() as stack:
        head = f"POST /plain.txt HTTP/1.1\r\nHost: a.example\r\nCookie: {'c' * 30_000}\r\nContent-Length: 250000\r\n\r\n".encode()

        def dribble() -> None:
            one = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
            one.sendall(head + b"b")
            assert one.recv(4096).startswith(b"HTTP/1.1 405")
            one.sendall(b"b")

        for _ in range(20):
            dribble()
        before = memory(server.front)
        for _ in range(400):
            dribble()
        more = memory(server.front) - before
        assert more < 16 << 20, f"{more >> 10} KB for 400 connections"


def test_a_refused_upload_that_goes_on_makes_room_for_newcomers(hayate_command, place) -> None:
    with started(place, "connections = 20") as server, contextlib.ExitStack() as stack:
        dribblers = [stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60)) for _ in range(20)]
        for one in dribblers:
            one.sendall(b"POST /plain.txt HTTP/1.1\r\nHost: a.example\r\nContent-Length: 250000\r\n\r\nb")
            assert one.recv(4096).startswith(b"HTTP/1.1 405")
        newcomer = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=0.3))
        newcomer.sendall(b"GET /plain.txt HTTP/1.1\r\nHost: a.example\r\n\r\n")
        for _ in range(60):
            for one in dribblers:
                with contextlib.suppress(OSError):
                    one.send(b"b" * 300)
            with contextlib.suppress(TimeoutError):
                assert newcomer.recv(15) == b"HTTP/1.1 200 OK"
                return
        raise AssertionError("those that still send keep all places")


def h2(server: TlsHayate, place: pathlib.Path, settings: bytes = b"") -> Raw:
    return Raw(connect(server.ports["tls"], "a.example", context(place / "one.pem", alpn=("h2",))), settings)


def test_records_that_are_not_whole_count_whichever_http_is_above(hayate_command, place) -> None:
    with started(place) as server, contextlib.ExitStack() as stack:
        for _ in range(60):
            one = h2(server, place)
            stack.callback(one.sock.close)
            one.request(1, "/plain.txt")
            assert one.status(1) == "200"
            # A record of 16 KB, but for its last byte.
            os.write(one.sock.fileno(), b"\x17\x03\x03\x40\x00" + os.urandom((16 << 10) - 1))
        deadline = time.monotonic() + PATIENCE
        while held(server) < 60 * (15 << 10):
            assert time.monotonic() < deadline, f"{held(server)} bytes count"
            time.sleep(0.05)


def test_what_tls_has_of_answers_counts_by_http2_too(hayate_command, place) -> None:
    """A window of 60,000 bytes: h2 has passed all of that on, and TLS has what the socket does not take."""
    # On a slow machine the first would be cut off before the last has come.
    with started(place, 'write_timeout = "1h"') as server, contextlib.ExitStack() as stack:
        before = held(server)
        for _ in range(60):
            tcp = socket.socket()
            tcp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            # The kernel remembers of an address how much it takes at once, and keeps as much more for the next: nobody has had this one.
            tcp.bind((f"127.{random.randrange(1, 255)}.{random.randrange(256)}.{random.randrange(1, 255)}", 0))
            tcp.connect(("127.0.0.1", server.ports["tls"]))
            tls = stack.enter_context(context(place / "one.pem", alpn=("h2",)).wrap_socket(tcp, server_hostname="a.example"))
            one = Raw(tls, b"\0\x04\x7f\xff\xff\xff")
            one.send(h2_frame(WINDOW_UPDATE, 0, 0, (1 << 30).to_bytes(4, "big")))
            one.send(h2_frame(HEADERS, 5, 1, one.head("/huge.bin")))
        deadline = time.monotonic() + PATIENCE
        # Of each answer 77 or 78 KB are with h2 and the front, and with TLS what the socket does not take of a record or two: 4 to 14 KB were seen.
        most = 0
        while (most := max(most, held(server) - before)) < 60 * 79_000:
            assert time.monotonic() < deadline, f"{most} bytes count at most, {held(server) - before} now"
            time.sleep(0.1)
