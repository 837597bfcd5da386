"""A certificate authority that takes connections and says nothing: all else goes on."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Iterator

import pytest

from lib.process import PATIENCE
from lib.servers import free_port
from lib.tls import TlsHayate, connect, self_signed, serial

CONFIG = """
listen = ["127.0.0.1:{port}", { address = "127.0.0.1:{tls}", tls = true }]
[tls]
acme = "on"
acme_hosts = [%s]
acme_directory = "https://127.0.0.1:%d/directory"
acme_storage = "%s"
certificates = [%s]
[[app]]
root = "%s"
php = "off"
"""
# Far less than an order has.
SOON = 6 * PATIENCE


class Silence:
    """Where it listens, and how many have come. They are kept."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._socket.getsockname()[1]
        self.heard: list[socket.socket] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self.heard.append(self._socket.accept()[0])

    def close(self) -> None:
        # Who waits in accept() keeps it open otherwise.
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        [client.close() for client in self.heard]


@pytest.fixture
def silence() -> Iterator[Silence]:
    made = Silence()
    yield made
    made.close()


@pytest.fixture
def place() -> Iterator[pathlib.Path]:
    with tempfile.TemporaryDirectory(prefix="silent-") as directory:
        path = pathlib.Path(directory)
        path.chmod(0o755)
        (path / "public").mkdir()
        (path / "public/index.html").write_text("here")
        yield path


def config(place: pathlib.Path, authority: int, ordered: list[str], files: list[str]) -> str:
    hosts = ", ".join(f'"{host}"' for host in ordered)
    pairs = ", ".join(f'{{ certificate = "{place}/{name}.pem", key = "{place}/{name}.key" }}' for name in files)
    return CONFIG % (hosts, authority, place / "storage", pairs, place / "public")


def configure(server: TlsHayate, text: str) -> None:
    for name, port in server.ports.items():
        text = text.replace("{" + name + "}", str(port))
    server._config.write_text(text)


def served(server: TlsHayate, host: str) -> bytes:
    loose = ssl.create_default_context()
    loose.check_hostname, loose.verify_mode = False, ssl.CERT_NONE
    with connect(server.ports["tls"], host, loose) as tls:
        return serial(tls)


def made(place: pathlib.Path, name: str) -> bytes:
    """A new pair of files for `name`.example."""
    chain, _ = self_signed(place, name, [f"{name}.example"])
    return ssl.PEM_cert_to_DER_cert(chain.read_text())


def wait_for(condition, seconds: float = 60 * PATIENCE, why=lambda: "") -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, why()
        time.sleep(0.05)


def ports() -> dict[str, int]:
    return {"port": free_port(), "tls": free_port()}


def test_certificates_from_files_are_taken_in_while_an_order_hangs(hayate_command, place, silence) -> None:
    """The fault: they waited for the order's end, up to five minutes, and the reload said that all was well."""
    made(place, "one")
    with TlsHayate(config(place, silence.port, ["two.example"], ["one"]), ports()) as server:
        wait_for(lambda: silence.heard, why=server.log)
        one, three = made(place, "one"), made(place, "three")
        configure(server, config(place, silence.port, ["two.example"], ["one", "three"]))
        began = time.monotonic()
        done = server.reload()
        took = time.monotonic() - began
        assert done.returncode == 0, done.stderr
        assert served(server, "one.example") == one and served(server, "three.example") == three, server.log()
        assert took < SOON, server.log()
        # What changes without a reload as well.
        one = made(place, "one")
        wait_for(lambda: served(server, "one.example") == one, why=server.log)
        assert "take long" not in server.log() and "no certificate was issued" not in server.log()
        # The order goes on: the authority is asked no second time.
        assert len(silence.heard) == 1, server.log()


def test_an_order_that_hangs_is_given_up_when_its_host_is_wanted_no_more(hayate_command, place, silence) -> None:
    made(place, "one")
    with TlsHayate(config(place, silence.port, ["two.example"], ["one"]), ports()) as server:
        wait_for(lambda: silence.heard, why=server.log)
        # Another authority, which is as silent.
        other = Silence()
        try:
            configure(server, config(place, other.port, ["two.example"], ["one"]))
            assert server.reload().returncode == 0
            wait_for(lambda: other.heard, SOON, server.log)
        finally:
            other.close()


def test_the_end_does_not_wait_for_an_order_that_hangs(hayate_command, place, silence) -> None:
    made(place, "one")
    with TlsHayate(config(place, silence.port, ["two.example"], ["one"]), ports()) as server:
        wait_for(lambda: silence.heard, why=server.log)
        made(place, "one")
        reload = threading.Thread(target=server.reload)
        reload.start()
        assert server.logged("reloading"), server.log()
        time.sleep(0.5)
        began = time.monotonic()
        server.stop()
        took = time.monotonic() - began
        reload.join()
        assert took < SOON, server.log()


def test_certificates_that_cannot_be_taken_in_refuse_a_reload_and_hold_up_no_end(hayate_command, place, silence) -> None:
    """A store that hangs: whoever opens a pipe waits for the other end."""
    made(place, "one")
    with TlsHayate(config(place, silence.port, ["two.example"], ["one"]), ports()) as server:
        wait_for(lambda: silence.heard, why=server.log)
        (storage,) = (place / "storage").iterdir()
        os.mkfifo(storage / "pipe.example.pem")
        configure(server, config(place, silence.port, ["two.example", "pipe.example"], ["one"]))
        done = server.reload()
        assert done.returncode == 1 and "certificates" in done.stderr and "acme_storage" in done.stderr, done.stderr
        reload = threading.Thread(target=server.reload)
        reload.start()
        assert server.logged("reloading", 2), server.log()
        time.sleep(0.5)
        began = time.monotonic()
        server.stop()
        took = time.monotonic() - began
        reload.join()
        assert took < SOON, server.log()
