"""What one client may have at one time, by its address, and how slowly it may take an answer: over plain HTTP, TLS, HTTP/2 and PROXY."""

from __future__ import annotations

import contextlib
import http.client
import pathlib
import select
import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from lib import site
from lib.process import free_port, wait_until
from lib.tls import TlsHayate, context, self_signed

from .h2 import DATA, HEADERS, RST_STREAM, WINDOW_UPDATE, Raw, frame

PROXY = "127.0.0.9"
HOLD = """<?php header('X-Began: yes'); while (ob_get_level()) { ob_end_flush(); } echo 'begun'; flush();
    for ($i = 0; $i < 1200 && !file_exists($_GET['until']); $i++) { usleep(50000); clearstatcache(); } echo 'over';"""


def config(root: pathlib.Path, place: pathlib.Path, limits: str, more: str = "") -> str:
    return f"""
        listen = ["127.0.0.1:{{port}}", {{ address = "127.0.0.1:{{tls}}", tls = true }},
                  {{ address = "127.0.0.1:{{proxy}}", proxy_protocol = true }}]
        metrics = "127.0.0.1:{{metrics}}"
        trusted_proxies = ["{PROXY}"]
        http2_prior_knowledge = true
        {more}
        [tls]
        certificates = [{{ certificate = "{place}/a.pem", key = "{place}/a.key" }}]
        redirect_http = false
        [limits]
        {limits}
        [[app]]
        root = "{root}"
        """


def ports() -> dict[str, int]:
    return {name: free_port() for name in ("port", "tls", "proxy", "metrics")}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> pathlib.Path:
    place = tmp_path_factory.mktemp("by-address")
    self_signed(place, "a", ["a.example"])
    root = site.make(place)
    (root / "hold.php").write_text(HOLD)
    with open(root / "large.bin", "wb") as file:
        file.truncate(400 << 20)
    return place


def connect(server: TlsHayate, source: str, port: str = "port") -> socket.socket:
    s = socket.create_connection(("127.0.0.1", server.ports[port]), timeout=60, source_address=(source, 0))
    return s


def tls(server: TlsHayate, place: pathlib.Path, source: str, *, alpn: tuple[str, ...] = ()) -> ssl.SSLSocket:
    tcp = connect(server, source, "tls")
    try:
        return context(place / "a.pem", alpn=alpn).wrap_socket(tcp, server_hostname="a.example")
    except BaseException:
        tcp.close()
        raise


def get(s: socket.socket, path: str = "/plain.txt", headers: str = "") -> tuple[int, dict[str, str]]:
    s.sendall(f"GET {path} HTTP/1.1\r\nHost: a.example\r\n{headers}\r\n".encode())
    answer = http.client.HTTPResponse(s)
    answer.begin()
    answer.read()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}


def is_served(s: socket.socket) -> bool:
    """Whether the connection is served, not closed at once."""
    try:
        return get(s)[0] == 200
    except (http.client.HTTPException, OSError):
        return False


def metric(server: TlsHayate, name: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", server.ports["metrics"], timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    found = re.search(rf"^{name} (\d+)$", text, re.M)
    assert found, f"{name} is not among the metrics:\n{text}"
    return int(found[1])


def test_connections_of_one_address(hayate_command, place) -> None:
    with (
        TlsHayate(config(place / "site", place, "connections_by_address = 3"), ports(), workers=1) as server,
        contextlib.ExitStack() as stack,
    ):

        def opened(source: str, port: str = "port") -> socket.socket:
            return stack.enter_context(connect(server, source, port))

        assert is_served(opened("127.0.0.2"))
        two = Raw(stack.enter_context(tls(server, place, "127.0.0.2", alpn=("h2",))))
        two.request(1, "/plain.txt")
        assert two.status(1) == "200"
        third = stack.enter_context(tls(server, place, "127.0.0.2"))
        assert is_served(third)
        for _ in range(5):
            assert not is_served(opened("127.0.0.2"))
        with pytest.raises(OSError):
            tls(server, place, "127.0.0.2")
        assert is_served(opened("127.0.0.3")), "another address is not concerned"
        assert is_served(third), "those that are there stay"
        # One that has gone makes room.
        third.close()

        def again() -> bool:
            s = opened("127.0.0.2")
            return is_served(s) or bool(s.close())

        assert wait_until(again)
        # A proxy that is trusted has as many as it likes.
        assert all(is_served(opened(PROXY)) for _ in range(6))
        # Those whom it names by PROXY count.
        header = "PROXY TCP4 {} 127.0.0.1 1234 80\r\n"

        def proxied(visitor: str) -> bool:
            s = opened(PROXY, "proxy")
            s.sendall(header.format(visitor).encode())
            return is_served(s)

        assert [proxied("198.51.100.7") for _ in range(5)] == [True, True, True, False, False]
        assert proxied("198.51.100.8")
        assert metric(server, "hayate_connections_closed_by_address_total") >= 8
        assert server.logged("connections_by_address")
        lines = [line for line in server.log().splitlines() if "connections_by_address" in line]
        # Of this address, or of the probes that waited for the server.
        assert len(lines) == 1 and "WARN" in lines[0] and "127.0.0." in lines[0], lines


def held(s: socket.socket, until: pathlib.Path, headers: str = "") -> socket.socket:
    """A request that is being answered, and stays so until the file is there."""
    s.sendall(f"GET /hold.php?until={until} HTTP/1.1\r\nHost: a.example\r\n{headers}\r\n".encode())
    begun = b""
    while b"X-Began" not in begun:
        more = s.recv(4096)
        assert more, begun
        begun += more
    assert begun.startswith(b"HTTP/1.1 200"), begun
    return s


def test_requests_of_one_address(hayate_command, place, tmp_path) -> None:
    tmp_path.chmod(0o755)
    until = tmp_path / "until"
    with (
        TlsHayate(config(place / "site", place, "requests_by_address = 3"), ports(), workers=8) as server,
        contextlib.ExitStack() as stack,
    ):

        def opened(source: str) -> socket.socket:
            return stack.enter_context(connect(server, source))

        # By HTTP/1, by TLS and by HTTP/2 over TLS, all together.
        held(opened("127.0.0.2"), until)
        held(stack.enter_context(tls(server, place, "127.0.0.2")), until)
        two = Raw(stack.enter_context(tls(server, place, "127.0.0.2", alpn=("h2",))))
        two.request(1, f"/hold.php?until={until}")
        assert two.status(1) == "200"
        two.request(3, "/plain.txt")
        assert two.status(3) == "503"
        for other in (Raw(opened("127.0.0.2")), Raw(stack.enter_context(tls(server, place, "127.0.0.2", alpn=("h2",))))):
            other.request(1, "/plain.txt")
            assert other.status(1) == "503"
        elsewhere = Raw(stack.enter_context(tls(server, place, "127.0.0.3", alpn=("h2",))))
        elsewhere.request(1, "/plain.txt")
        assert elsewhere.status(1) == "200"
        s = opened("127.0.0.2")
        status, headers = get(s)
        assert (status, headers.get("retry-after")) == (503, "1")
        assert get(s)[0] == 503, "the connection goes on"
        assert get(opened("127.0.0.3"))[0] == 200
        # Behind a proxy clients are those that it names; whom it does not name nobody counts.
        proxy = opened(PROXY)
        for n in range(3):
            held(opened(PROXY), until, "X-Forwarded-For: 198.51.100.7\r\n")
        assert get(proxy, headers="X-Forwarded-For: 198.51.100.7\r\n")[0] == 503
        assert get(proxy, headers="X-Forwarded-For: 198.51.100.8\r\n")[0] == 200
        assert get(proxy)[0] == 200
        until.touch()
        assert wait_until(lambda: get(s)[0] == 200)
        assert metric(server, "hayate_requests_refused_by_address_total") >= 4
        assert server.logged("requests_by_address")
        lines = [line for line in server.log().splitlines() if "requests_by_address" in line]
        assert len(lines) == 1 and "WARN" in lines[0], lines
        assert " ERROR " not in server.log()


def test_a_request_counts_until_its_answer_is_taken_and_its_script_is_over(hayate_command, place, tmp_path) -> None:
    tmp_path.chmod(0o755)
    until = tmp_path / "until"
    # All of it fits into what h2 takes, and nothing of it into the client's window.
    (place / "site" / "some.txt").write_text("x" * 10_000)
    (place / "site" / "some.txt").chmod(0o644)
    with (
        TlsHayate(config(place / "site", place, "requests_by_address = 2"), ports(), workers=4) as server,
        contextlib.ExitStack() as stack,
    ):

        def opened(source: str) -> socket.socket:
            return stack.enter_context(connect(server, source))

        def served(source: str) -> bool:
            return get(opened(source))[0] == 200

        # The heads are there; the bodies are not taken.
        slow = Raw(opened("127.0.0.2"), struct.pack(">HI", 4, 0))
        for stream in (1, 3):
            slow.request(stream, "/some.txt")
            assert slow.status(stream) == "200"
        assert not served("127.0.0.2") and served("127.0.0.3")
        for stream in (1, 3):
            slow.send(frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", 20_000)))
        assert wait_until(lambda: served("127.0.0.2"))
        # The answer to a HEAD is whole at once; its script runs on.
        for _ in range(2):
            s = opened("127.0.0.4")
            s.sendall(f"HEAD /hold.php?until={until} HTTP/1.1\r\nHost: a.example\r\n\r\n".encode())
            assert s.recv(4096).startswith(b"HTTP/1.1 200")
        assert not served("127.0.0.4") and served("127.0.0.5")
        until.touch()
        assert wait_until(lambda: served("127.0.0.4"))


@pytest.fixture(scope="module")
def rates(hayate_command, place) -> Iterator[tuple[TlsHayate, TlsHayate]]:
    """One server with a least rate, and one without."""
    limits = "write_timeout = '3s'\nwrite_rate = '{}'"
    with (
        TlsHayate(config(place / "site", place, limits.format("100K")), ports(), workers=1) as strict,
        TlsHayate(config(place / "site", place, limits.format("0")), ports(), workers=1) as lax,
    ):
        yield strict, lax


def drip(server: TlsHayate, place: pathlib.Path, seconds: float, step: int) -> bool:
    """Asks for a large file by HTTP/2 and lets so many more bytes of it come ten times a second. Whether the server put up with it."""
    sock = tls(server, place, "127.0.0.1", alpn=("h2",))
    with sock:
        two = Raw(sock, struct.pack(">HI", 4, 1000))
        two.request(1, "/large.bin")
        end = time.monotonic() + seconds
        # In one thread: OpenSSL's connections do not bear two.
        while time.monotonic() < end:
            if not two.send(frame(WINDOW_UPDATE, 0, 1, struct.pack(">I", step))):
                return False
            pause = time.monotonic() + 0.1
            while (left := pause - time.monotonic()) > 0 and (sock.pending() > 0 or select.select([sock], [], [], left)[0]):
                got = two.receive()
                if got is None or got[0] == RST_STREAM:
                    return False
                assert got[0] != HEADERS or two.decoder.decode(got[3])[0] == (":status", "200")
        return True


def test_an_answer_that_is_taken_too_slowly_is_cut(rates, place) -> None:
    strict, lax = rates
    patient: list[bool] = []
    beside = threading.Thread(target=lambda: patient.append(drip(lax, place, 12, 1)))
    beside.start()
    assert not drip(strict, place, 60, 1)
    beside.join()
    assert patient == [True], "without the rule it goes on"


def test_whoever_takes_enough_gets_all(rates) -> None:
    strict, _ = rates
    with connect(strict, "127.0.0.1") as s:
        two = Raw(s, struct.pack(">HI", 4, 20_000))
        two.request(1, "/style.css")
        size = 0
        while True:
            kind, flags, stream, payload = two.until(lambda *_: True)
            assert kind != RST_STREAM
            if kind == DATA:
                size += len(payload)
                if flags & 1:
                    break
                two.send(frame(WINDOW_UPDATE, 0, 1, struct.pack(">I", len(payload) or 1)))
        assert size == len(site.SCRIPTS["style.css"])


def test_the_rate_holds_for_http1_and_tls(hayate_command, place) -> None:
    # No client on this machine takes a gigabyte a second in pieces of 64 KB with pauses; each takes some within write_timeout.
    limits = "write_timeout = '3s'\nwrite_rate = '1G'"
    with TlsHayate(config(place / "site", place, limits), ports(), workers=1) as server:
        for s in (connect(server, "127.0.0.1"), tls(server, place, "127.0.0.1")):
            with s:
                s.sendall(b"GET /large.bin HTTP/1.1\r\nHost: a.example\r\n\r\n")
                size, began = 0, time.monotonic()
                with contextlib.suppress(ConnectionError, ssl.SSLError):
                    while (more := len(s.recv(65536))) and time.monotonic() < began + 60:
                        size += more
                        time.sleep(0.02)
                assert 0 < size < 400 << 20 and time.monotonic() < began + 60
