"""Where Hayate listens, and how many connections it takes."""

from __future__ import annotations

import pathlib
import selectors
import socket
import subprocess
import sys
import time

import pytest
import requests

from lib import site
from lib.process import is_free, wait_until
from lib.servers import ROOT, Hayate, free_port


def test_a_free_port_is_free_on_every_address_and_given_once() -> None:
    ports = [free_port() for _ in range(200)]
    assert len(set(ports)) == len(ports)
    ephemeral = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert max(ports) < max(ephemeral, 16384)
    # Another run of the suite gets others.
    code = "from lib.process import free_port; print(*[free_port() for _ in range(200)])"
    path = pathlib.Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=path, capture_output=True, text=True, check=True)
    assert not set(map(int, done.stdout.split())) & set(ports)
    # The fault: nobody listens on 127.0.0.1, but somebody does on another address.
    with socket.create_server(("127.0.0.2", ports[0])):
        assert not is_free(ports[0])
    assert is_free(ports[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.2", ports[0]))
        assert not is_free(ports[0])
    assert is_free(ports[0])


def get(port: int, host: str = "127.0.0.1") -> str:
    return requests.get(f"http://{host}:{port}/ok.php?x", timeout=60).text


def test_all_ipv4_and_all_ipv6_addresses_together(hayate_command, tmp_path) -> None:
    if "00000000000000000000000000000001" not in pathlib.Path("/proc/net/if_inet6").read_text():
        pytest.skip("this machine has no IPv6")
    root = site.make(tmp_path)
    port = free_port()
    user = "www-data" if ROOT else None
    with Hayate(root, workers=1, args=["--listen", f":{port}", "--listen", f"[::]:{port}"], user=user) as hayate:
        assert get(port) == get(port, "[::1]") == get(hayate.port) == "ok x"
    # Alone it is IPv6 only, as with nginx.
    with Hayate(root, workers=1, args=["--listen", f"[::]:{port}"], user=user):
        assert get(port, "[::1]") == "ok x"
        with pytest.raises(requests.ConnectionError):
            get(port)


class Connection:
    """A kept connection; `served` says whether the answer to its request came within that many seconds. It never idles: it would make room."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.sendall(b"GET /plain.txt HTTP/1.1\r\nHost: a\r\n\r\nGET /")
        self.answered = False

    def served(self, seconds: float) -> bool:
        """Whether it has its answer by then, or had it before."""
        self.socket.settimeout(seconds)
        try:
            self.answered = self.answered or self.socket.recv(65536).startswith(b"HTTP/1.1 200")
        except TimeoutError:
            pass
        return self.answered

    def close(self) -> None:
        self.socket.close()


def test_the_limit_of_connections_is_one_for_all_listeners_and_follows_a_reload(hayate_command, tmp_path) -> None:
    root = site.make(tmp_path)
    config = tmp_path / "hayate.toml"
    text = f'[limits]\nheader_timeout = "300s"\nconnections = {{}}\n[[app]]\nroot = "{root}"\n'
    config.write_text(text.format(4))
    second = free_port()
    with Hayate(config=config, workers=1, args=["--listen", f"127.0.0.1:{second}"]) as hayate:
        ports = [hayate.port, second]
        assert wait_until(lambda: hayate.status()["connections"] == 0)
        served = [Connection(ports[i % 2]) for i in range(4)]
        assert all(connection.served(60) for connection in served)
        waiting = [Connection(port) for port in ports for _ in range(2)]
        assert not any(connection.served(0.2) for connection in waiting)
        # One that goes makes room for one that waits.
        served.pop().close()
        assert wait_until(lambda: sum(connection.served(0.05) for connection in waiting) == 1)
        # More room after a reload: none waits any more. (On a slow machine some of those that were served have made room by then.)
        config.write_text(text.format(7))
        assert hayate.reload().returncode == 0
        assert wait_until(lambda: all([connection.served(0.05) for connection in waiting]))
        # And less: those that are there stay, a new one waits until enough have gone.
        config.write_text(text.format(2))
        assert hayate.reload().returncode == 0
        for connection in served + waiting[:3]:
            connection.close()
        assert wait_until(lambda: hayate.status()["connections"] <= 2)
        late = Connection(second)
        assert wait_until(lambda: hayate.status()["connections"] == 2)
        waiting[3].close()
        assert late.served(60)
        late.close()
        assert hayate.logged("limits.connections (4) is reached")


def test_listeners_that_accept_at_the_same_time_take_no_connection_too_many(hayate_command, tmp_path) -> None:
    root = site.make(tmp_path)
    config = tmp_path / "hayate.toml"
    config.write_text(f'[limits]\nconnections = 2\n[[app]]\nroot = "{root}"\n')
    others = [free_port() for _ in range(3)]
    args = [word for port in others for word in ("--listen", f"127.0.0.1:{port}")]
    with Hayate(config=config, workers=1, args=args) as hayate:
        ports = [hayate.port, *others]
        waiting = [Connection(ports[i % 4]) for i in range(600)]
        deadline = time.monotonic() + 60
        # Not select(): it knows no descriptor above 1,023.
        with selectors.DefaultSelector() as selector:
            for connection in waiting:
                selector.register(connection.socket, selectors.EVENT_READ, connection)
            # Each that goes makes room for one; whenever two listeners see it at once, only one of them may take it.
            while selector.get_map():
                assert time.monotonic() < deadline, f"{len(selector.get_map())} were never served"
                served = [key.data for key, _ in selector.select(1)]
                assert len(served) <= 2
                for connection in served:
                    selector.unregister(connection.socket)
                    connection.close()
