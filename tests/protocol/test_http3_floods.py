"""HTTP/3: what a client makes the server keep with little: connections that are over, streams with nothing in them, datagrams for a byte each. And
who goes on from another address."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import time

import pytest

from lib.process import wait_until
from lib.tls import TlsHayate

from .h3 import PATIENCE, Http3, frame
from .test_http3 import client, memory, ports, text
from .test_http3 import place as place

REQUEST_REJECTED = 0x10B
#: For one datagram of several (udp(7)).
UDP_SEGMENT = 103


def closing() -> bytes:
    """The first datagram of a connection, which ends it: its keys are known to everybody (RFC 9001, 5.2), and no answer is needed."""
    from aioquic.quic.crypto import CryptoPair
    from aioquic.quic.packet import QuicFrameType, QuicPacketType
    from aioquic.quic.packet_builder import QuicPacketBuilder

    here, there = os.urandom(8), os.urandom(8)
    crypto = CryptoPair()
    crypto.setup_initial(there, is_client=True, version=1)
    builder = QuicPacketBuilder(host_cid=here, peer_cid=there, version=1, is_client=True, max_datagram_size=1200)
    builder.start_packet(QuicPacketType.INITIAL, crypto)
    close = builder.start_frame(QuicFrameType.TRANSPORT_CLOSE, capacity=64)
    for _ in range(3):
        close.push_uint_var(0)
    return builder.flush()[0][0]


def test_datagrams_that_begin_and_end_a_connection_leave_little(hayate_command, place) -> None:
    """quinn keeps such a connection for the longest silence. They come from whatever address their sender writes into them."""
    datagrams = [closing() for _ in range(3000)]
    with TlsHayate(text(place, place / "site"), ports()) as server, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        with client(server, place) as one:
            assert one.get().status == 200
        sock.connect(("127.0.0.1", server.ports["tls"]))
        before = memory(server.front)
        for i, datagram in enumerate(datagrams):
            sock.send(datagram)
            if i % 20 == 0:
                time.sleep(0.01)
        # Who is there shows it, and comes through.
        with client(server, place) as one:
            assert one.get().status == 200
            assert one.quic._retry_count == 1
        more = memory(server.front) - before
        assert more < 15 << 20, f"{more >> 20} MB"


def test_who_closes_and_comes_again_is_welcome(hayate_command, place) -> None:
    """As browsers do: many pages, each with a connection of its own, all from one address."""
    with TlsHayate(text(place, place / "site"), ports()) as server:
        for _ in range(100):
            with client(server, place) as one:
                assert one.get("/plain.txt").status == 200


def test_a_hundred_streams_at_one_time(hayate_command, place) -> None:
    with TlsHayate(text(place, place / "site", limits="connections = 20"), ports()) as server, client(server, place) as one:
        streams = [one.begin("/plain.txt") for _ in range(100)]
        assert {one.answer(stream).status for stream in streams} == {200}


def slow_to_confirm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients say that they may take 16 s to confirm anything. Three times that and more is how long quinn keeps what is over."""
    from aioquic.quic import connection

    real = connection.QuicTransportParameters
    monkeypatch.setattr(connection, "QuicTransportParameters", lambda **said: real(**{**said, "max_ack_delay": 16383}))


def test_answers_to_clients_that_leave_are_let_go_of(hayate_command, place, monkeypatch) -> None:
    (place / "site" / "large.bin").write_bytes(b"l" * (1000 << 10))
    slow_to_confirm(monkeypatch)
    with TlsHayate(text(place, place / "site"), ports()) as server:

        def leave() -> None:
            with client(server, place, max_data=1 << 26, max_stream_data=1 << 26) as one:
                # It confirms nothing.
                one.quic._write_ack_frame = lambda **_: None
                one.begin("/large.bin")
                one.step(0.2)
                one.step(0.05)

        leave()
        before = memory(server.front)
        for _ in range(60):
            leave()
        more = memory(server.front) - before
        assert more < 25 << 20, f"{more >> 20} MB"


def test_bodies_to_which_nobody_listens_are_let_go_of(hayate_command, place, monkeypatch) -> None:
    """What precedes them did not come, so they wait in quinn."""
    slow_to_confirm(monkeypatch)
    with TlsHayate(text(place, place / "site"), ports()) as server:

        def leave() -> None:
            with client(server, place) as one:
                one.quic._loss._cc.congestion_window = 1 << 20
                streams = [one.begin("/sleep.php?ms=10", "PUT", end=False) for _ in range(3)]
                one.step(0.01)
                for stream in streams:
                    one.quic.send_stream_data(stream, frame(0, length=1 << 20))
                # It is lost, and what is not heard is not sent again.
                assert one.quic.datagrams_to_send(now=time.time())
                for _ in range(40):
                    for stream in streams:
                        one.quic.send_stream_data(stream, b"y" * 5_000)
                    one.flush()
                    time.sleep(0.004)

        leave()
        before = memory(server.front)
        for _ in range(30):
            leave()
        more = memory(server.front) - before
        assert more < 10 << 20, f"{more >> 20} MB"


def begun(text: str) -> str:
    """Heads may take their time."""
    return text.replace('header_timeout = "3s"\n', 'header_timeout = "300s"\n')


def test_streams_without_a_head_make_room_for_newcomers(hayate_command, place) -> None:
    config = begun(text(place, place / "site", limits="connections = 20"))
    with TlsHayate(config, ports()) as server, contextlib.ExitStack() as stack:
        for _ in range(20):
            one = client(server, place)
            stack.callback(one.__exit__)
            one.wait(lambda one=one: one.h3 is not None or one.terminated is not None)
            one.raw(b"\x01", end=False)
            one.step(0.01)
        newcomer = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=20))
        newcomer.sendall(b"GET /ok.php?x HTTP/1.1\r\nHost: a.example\r\n\r\n")
        assert newcomer.recv(15) == b"HTTP/1.1 200 OK"


def test_streams_without_a_head_count(hayate_command, place) -> None:
    """A byte on the last stream opens all before it."""
    config = begun(text(place, place / "site", limits='answer_memory = "4M"'))
    with TlsHayate(config, ports()) as server, contextlib.ExitStack() as stack:
        beside = stack.enter_context(client(server, place, source="127.0.0.2"))
        greedy = []
        deadline = time.monotonic() + PATIENCE
        while not any(one.terminated for one in greedy):
            assert len(greedy) < 60 and time.monotonic() < deadline, "7,680 streams are put up with"
            one = client(server, place)
            stack.callback(one.__exit__)
            one.wait(lambda one=one: one.h3 is not None or one.terminated is not None)
            greedy.append(one)
            if one.terminated is None:
                one.raw(b"\x01", stream=4 * 127, end=False)
            for each in greedy:
                each.step(0.002)
        assert server.logged("answer_memory")
        assert beside.get().status == 200


def test_downloads_of_many_are_not_cut_where_memory_is_little(hayate_command, place) -> None:
    """What quinn has of them counts, so it takes less of each."""
    (place / "site" / "download.bin").write_bytes(b"d" * (3 << 20))
    config = text(place, place / "site", limits='answer_memory = "8M"')
    with TlsHayate(config, ports()) as server, contextlib.ExitStack() as stack:
        many = [stack.enter_context(client(server, place, max_data=1 << 26, max_stream_data=1 << 26)) for _ in range(12)]
        streams = [one.begin("/download.bin") for one in many]
        deadline = time.monotonic() + PATIENCE
        while not all(one.over(stream) for one, stream in zip(many, streams, strict=True)):
            assert time.monotonic() < deadline
            for one in many:
                one.step(0.001)
        for one, stream in zip(many, streams, strict=True):
            assert one.terminated is None, one.terminated
            assert len(one.answers[stream].body) == 3 << 20


def test_far_more_than_is_read_ends_the_connection(hayate_command, place) -> None:
    """Datagrams of which nothing is of use, beside a byte here and there that has to wait: quinn keeps all of a datagram for it."""
    with TlsHayate(text(place, place / "site"), ports()) as server, client(server, place, source="127.0.0.2") as beside:
        one = client(server, place)
        one.__enter__()
        assert one.get().status == 200
        noise = b"\x40" + one.quic._peer_cid.cid + os.urandom(1191)
        deadline = time.monotonic() + 20
        while one.terminated is None:
            assert time.monotonic() < deadline, "it goes on"
            for _ in range(50):
                one.socket.send(noise)
            one.step(0.003)
        one.__exit__()
        assert beside.get().status == 200


def test_what_comes_together_is_not_kept_together(hayate_command, place) -> None:
    """Datagrams that come at one time are in one piece of memory (UDP_GRO), of which a byte that has to wait would keep all."""
    with TlsHayate(text(place, place / "site"), ports()) as server, contextlib.ExitStack() as stack:
        before = 0
        for number in range(5):
            one = stack.enter_context(client(server, place))
            assert one.get().status == 200
            if number == 0:
                before = memory(server.front)
                continue
            noise = b"\x40" + one.quic._peer_cid.cid + os.urandom(1191)
            stream = one.quic.get_next_available_stream_id()
            for i in range(110):
                # One byte for nothing, and one that has to wait for it.
                for sent in (False, True):
                    one.quic.send_stream_data(stream, b"x")
                    [(byte, _)] = one.quic.datagrams_to_send(now=time.time())
                    if sent:
                        one.socket.sendmsg([noise * 52 + byte], [(socket.IPPROTO_UDP, UDP_SEGMENT, struct.pack("H", 1200))])
                        time.sleep(0.002)
        more = memory(server.front) - before
        assert more < 10 << 20, f"{more >> 20} MB for a few hundred bytes"


def moves(one: Http3, source: str) -> None:
    one.socket.close()
    one.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.socket.bind((source, 0))
    one.socket.connect(one.address)


def test_who_has_moved_comes_again(hayate_command, place) -> None:
    """Rules, counts and the log go by the address where a connection began; a port may change on the way."""
    with TlsHayate(text(place, place / "site"), ports()) as server:
        with client(server, place) as one:
            assert one.get().status == 200
            moves(one, "127.0.0.1")
            assert one.get().status == 200
            moves(one, "127.0.0.2")
            stream = one.begin("/ok.php?x")
            one.wait(lambda: one.over(stream))
            assert one.answers[stream].reset == REQUEST_REJECTED and not one.answers[stream].headers
            one.wait(lambda: one.terminated is not None)
        with client(server, place, source="127.0.0.2") as again:
            assert again.get().status == 200


def test_a_front_that_died_is_missed_by_all_at_once(hayate_command, place) -> None:
    with TlsHayate(text(place, place / "site"), ports()) as server, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(client(server, place)) for _ in range(20)]
        for one in clients:
            assert one.get("/plain.txt").status == 200
        front = server.front
        os.kill(front, signal.SIGKILL)
        assert wait_until(lambda: server.run("status").returncode == 0 and server.front != front, PATIENCE, 0.1)
        for one in clients:
            one.socket.settimeout(0)
            with contextlib.suppress(BlockingIOError, ConnectionRefusedError):
                while one.socket.recv(65536):
                    pass
            # Something of a connection that the new one does not know.
            one.socket.send(b"\x40" + one.quic._peer_cid.cid + os.urandom(60))
        deadline = time.monotonic() + 10
        told = 0
        for one in clients:
            one.socket.settimeout(max(deadline - time.monotonic(), 0.1))
            with contextlib.suppress(TimeoutError, ConnectionRefusedError):
                told += one.socket.recv(65536)[-16:] in one.reset_tokens()
        assert told == len(clients)
