"""What a client has been sent is its own, whatever it sends meanwhile: a connection that is closed with bytes unread is reset by the kernel,
which throws away what the client has not received."""

from __future__ import annotations

import pathlib
import random
import signal
import socket
import time
from collections.abc import Iterator

import pytest

from lib.servers import free_port
from lib.tls import TlsHayate, context, self_signed

pytestmark = pytest.mark.plain("the ends of HTTP/1 on bare sockets, with TLS and without")

# More than a socket takes at one time, and less than one takes.
SIZES = {"large": 10 << 20, "small": 300 << 10}
CONFIG = """
listen = ["127.0.0.1:{port}", { address = "127.0.0.1:{tls}", tls = true }]
drain_timeout = "60s"
[tls]
certificates = [{ certificate = "%s/a.pem", key = "%s/a.key" }]
redirect_http = false
[[app]]
root = "%s"
php = "off"
"""


@pytest.fixture(scope="module")
def contents() -> dict[str, bytes]:
    return {name: random.Random(size).randbytes(size) for name, size in SIZES.items()}


@pytest.fixture(scope="module")
def place(tmp_path_factory, contents) -> pathlib.Path:
    made = tmp_path_factory.mktemp("closing")
    made.chmod(0o755)
    (made / "site").mkdir()
    for name, content in contents.items():
        (made / "site" / name).write_bytes(content)
    self_signed(made, "a", ["a"])
    return made


def started(place: pathlib.Path) -> TlsHayate:
    config = CONFIG % (place, place, place / "site")
    return TlsHayate(config, {"port": free_port(), "tls": free_port()})


@pytest.fixture(scope="module")
def server(hayate_command, place) -> Iterator[TlsHayate]:
    with started(place) as hayate:
        yield hayate


def connect(server: TlsHayate, place: pathlib.Path, tls: bool) -> socket.socket:
    """It takes little at one time, so that the rest waits on the server's side."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 << 10)
    sock.settimeout(60)
    sock.connect(("127.0.0.1", server.ports["tls" if tls else "port"]))
    return context(place / "a.pem").wrap_socket(sock, server_hostname="a") if tls else sock


def ask(sock: socket.socket, name: str, more: str = "") -> None:
    sock.sendall(f"GET /{name} HTTP/1.1\r\nHost: a\r\n{more}\r\n".encode())


def received(sock: socket.socket) -> bytes:
    """The body of the answer, to the end of the connection."""
    data = bytearray()
    while piece := sock.recv(1 << 16):
        data += piece
    head, _, body = bytes(data).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), head
    return body


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_what_comes_after_the_last_request_costs_nothing_of_the_answer(server, place, contents, tls) -> None:
    with connect(server, place, tls) as client:
        ask(client, "large", "Connection: close\r\n")
        # The kernel takes what comes now, for nobody reads while a file is sent.
        time.sleep(0.3)
        ask(client, "small")
        assert received(client) == contents["large"]


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("early", [True, False], ids=["early", "late"])
@pytest.mark.parametrize("name", SIZES)
def test_a_server_that_ends_leaves_clients_their_answers(hayate_command, place, contents, name, early, tls) -> None:
    """The client was not told that there is no next request, so it may send one; before the server ends or after, while it sends the answer or
    when all of that is with the kernel."""
    with started(place) as server, connect(server, place, tls) as client:
        ask(client, name)
        time.sleep(0.5)
        if early:
            ask(client, name)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(2)
        if not early:
            ask(client, name)
        # Where the next one came early enough, it is answered.
        assert received(client).startswith(contents[name])


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_who_has_all_of_the_last_answer_is_not_waited_for(server, place, contents, tls) -> None:
    """The client closes nothing; the server does, at once."""
    with connect(server, place, tls) as client:
        ask(client, "small", "Connection: close\r\n")
        assert received(client) == contents["small"]
        began = time.monotonic()
        while server.status()["connections"] > 0:
            assert time.monotonic() - began < 3, "it is still open"
            time.sleep(0.05)


def test_who_trickles_after_the_answer_holds_up_no_end(hayate_command, place, contents) -> None:
    """Half a minute is the time of a client whose connection ends by itself; a server that ends waits for 5 s, and cuts off nobody."""
    with started(place) as server, connect(server, place, tls=False) as client:
        # A body that is not over, of which nobody wants to know.
        ask(client, "small", "Content-Length: 1000000\r\n")
        head = client.recv(1 << 16)
        assert head.startswith(b"HTTP/1.1 200 "), head
        server.process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        client.settimeout(0.3)
        while server.process.poll() is None:
            assert time.monotonic() - began < 20, "it is waited for"
            try:
                client.sendall(b"x")
                client.recv(1 << 16)
                time.sleep(0.2)
            except TimeoutError:
                pass
            except OSError:
                break
        server.process.wait(20 - (time.monotonic() - began))
        assert "cut off" not in server.log()
