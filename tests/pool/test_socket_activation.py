"""Sockets that a service manager hands in (sd_listen_fds(3)), as systemd does for a socket unit."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
from collections.abc import Collection, Sequence

import pytest
import requests

from lib import site
from lib.process import free_port, open_files, temporary_directory, wait_until
from lib.servers import Hayate
from lib.tls import TlsHayate, connect, context, get, self_signed

# Opens sockets as a service manager does, and becomes the server. Its arguments: kinds of sockets, or a directory to be in; "--", the command.
PARENT = """
import os, socket, sys
at = sys.argv.index("--")
sockets = []
for word in sys.argv[1:at]:
    kind, where = word.split("=", 1)
    if kind == "in":
        os.chdir(where)
        continue
    if kind == "tcp":
        s = socket.create_server(("127.0.0.1", int(where)))
    elif kind == "unix":
        s = socket.socket(socket.AF_UNIX)
        s.bind(where)
        os.chmod(where, 0o666)
        s.listen()
    elif kind == "udp":
        s = socket.socket(type=socket.SOCK_DGRAM)
        s.bind(("127.0.0.1", int(where)))
    elif kind == "deaf":
        s = socket.socket()
    else:
        s = open("/dev/null")
    sockets.append(s)
for number, s in enumerate([os.dup2(s.fileno(), 100 + i) for i, s in enumerate(sockets)], 3):
    os.dup2(s, number, inheritable=True)
os.closerange(3 + len(sockets), 200)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(sockets)), "LISTEN_FDNAMES": ":".join("n" for _ in sockets)}
os.execv(sys.argv[at + 1], sys.argv[at + 1:])
"""


class Activated(Hayate):
    """`sockets` as PARENT wants them; {port} is the server's."""

    sockets: Sequence[str] = ()

    def command(self) -> Sequence[str]:
        command = super().command()
        words = [word.format(port=self.port) for word in self.sockets]
        return [sys.executable, "-c", PARENT, *words, "--", *command]


def open_sockets(pid: int) -> set[str]:
    return {name for name, _ in open_files(pid) if name.startswith("socket:")}


def bound(tcp: Collection[int], udp: Collection[int]) -> set[str]:
    """The sockets that listen at these ports, as open_sockets() names them."""
    found = set()
    for name, ports in (("tcp", tcp), ("udp", udp)):
        for line in pathlib.Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if int(fields[1].split(":")[1], 16) in ports and (name == "udp" or fields[3] == "0A"):
                found.add(f"socket:[{fields[9]}]")
    return found


@pytest.mark.parametrize("named", ["{path}", "./web.sock", "web.sock"])
def test_sockets_are_used_by_the_listeners_of_their_address(tmp_path, named: str) -> None:
    root = site.make(tmp_path)
    (root / "fds.php").write_text("<?php foreach (glob('/proc/self/fd/*') as $fd) { echo @readlink($fd), \"\\n\"; } echo getenv('LISTEN_FDS');")
    directory = temporary_directory("activation")
    path, other = directory / "web.sock", free_port()

    class Server(Activated):
        sockets = [f"in={directory}", "tcp={port}", f"unix={path}", f"tcp={other}"]

    with Server(root, workers=1, args=["--listen", "unix:" + named.format(path=path)]) as server:
        inodes = open_sockets(server.pid)
        assert requests.get(server.url + "/plain.txt", timeout=60).status_code == 200
        with socket.socket(socket.AF_UNIX) as visitor:
            visitor.settimeout(20)
            visitor.connect(str(path))
            visitor.sendall(b"GET /plain.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            assert visitor.recv(1000).startswith(b"HTTP/1.1 200")
        assert server.logged(f"hands in a socket at http://127.0.0.1:{other}")
        # PHP has none of them.
        seen = requests.get(server.url + "/fds.php", timeout=60).text
        inherited = {line for line in seen.splitlines() if line.startswith("socket:")} & inodes
        assert inherited == set(), seen
        zygote = server.status()["apps"][0]["zygote"]
        if os.geteuid() == 0:
            assert not open_sockets(zygote) & inodes
        # They outlive a reload and an upgrade.
        assert server.reload().returncode == 0
        front = server.front
        done = server.run("upgrade", timeout=120)
        assert done.returncode == 0, (done, server.log_tail())
        assert wait_until(lambda: server.front != front)
        assert requests.get(server.url + "/plain.txt", timeout=60).status_code == 200
    assert path.exists(), "its file is the service manager's"


ENCRYPTED = """
listen = [
    "127.0.0.1:{port}", {{ address = "127.0.0.1:{tls}", tls = true }}, {{ address = "127.0.0.1:{proxy}", proxy_protocol = true }},
    {{ address = "127.0.0.1:{both}", tls = true, proxy_protocol = true }},
]
trusted_proxies = "127.0.0.1"
[tls]
http3 = true
redirect_http = false
certificates = [{{ certificate = "{files}/one.pem", key = "{files}/one.key" }}]
[[app]]
root = "{root}"
workers = 1
"""


def test_sockets_of_tls_and_proxies_and_http3(hayate_command, tmp_path) -> None:
    """Each is held already, so that the server could not bind it: who is served is served by what was handed in."""
    from protocol.h3 import Http3

    root = site.make(tmp_path)
    self_signed(tmp_path, "one", ["a.example"])
    ports = {name: free_port() for name in ("port", "tls", "proxy", "both")}

    class Server(Activated, TlsHayate):
        sockets = [*(f"tcp={port}" for port in ports.values()), f"udp={ports['tls']}"]

    proxied = b"PROXY TCP4 192.0.2.9 192.0.2.1 4711 443\r\n"

    def serves(server: Server) -> None:
        made = context(tmp_path / "one.pem")
        with connect(ports["tls"], "a.example", made) as tls:
            assert json.loads(get(tls, "/server.php")[2])["HTTPS"] == "on"
        for name in ("proxy", "both"):
            with contextlib.ExitStack() as stack:
                visitor = stack.enter_context(socket.create_connection(("127.0.0.1", ports[name]), timeout=60))
                visitor.sendall(proxied)
                if name == "both":
                    visitor = stack.enter_context(made.wrap_socket(visitor, server_hostname="a.example"))
                seen = json.loads(get(visitor, "/server.php")[2])
                assert (seen["REMOTE_ADDR"], seen.get("HTTPS") == "on") == ("192.0.2.9", name == "both")
        with Http3(ports["tls"], authority=tmp_path / "one.pem") as visitor:
            seen = json.loads(bytes(visitor.get("/server.php").body))
            assert (seen["SERVER_PROTOCOL"], seen["REMOTE_ADDR"]) == ("HTTP/3.0", "127.0.0.1")

    with Server(ENCRYPTED.format(files=tmp_path, root=root, **{name: "{" + name + "}" for name in ports}), ports) as server:
        handed_in = bound(ports.values(), [ports["tls"]])
        assert len(handed_in) == len(Server.sockets) and handed_in <= open_sockets(server.pid)
        serves(server)
        assert "hands in a socket at" not in server.log()
        assert server.reload().returncode == 0
        serves(server)
        front = server.front
        done = server.run("upgrade", timeout=120)
        assert done.returncode == 0, (done, server.log_tail())
        assert wait_until(lambda: server.front != front)
        # Until the front before is gone it refuses callers by HTTP/3.
        assert wait_until(lambda: not pathlib.Path(f"/proc/{front}").exists())
        serves(server)
        assert bound(ports.values(), [ports["tls"]]) == handed_in <= open_sockets(server.pid)


@pytest.mark.parametrize("what", ["deaf=", "file="])
def test_what_is_no_listening_socket_is_refused(tmp_path, what) -> None:
    class Server(Activated):
        sockets = [what]

    server = Server(site.make(tmp_path), workers=1)
    command = server.command()
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    server.remove()
    assert done.returncode == 1 and "descriptor 3 of LISTEN_FDS cannot be served: expected a stream socket" in done.stderr, done
