"""Which port visitors are sent to and told of, which hosts they are sent to at all, and who is turned away where a proxy speaks first."""

from __future__ import annotations

import http.client
import os
import pathlib
import socket
import tempfile
import time
from collections.abc import Iterator

import pytest

from lib import site
from lib.servers import free_port
from lib.tls import TlsHayate, connect, context, get, self_signed

USER = 'user = "www-data"' if os.geteuid() == 0 else ""
CONFIG = """
listen = [
    "127.0.0.1:{port}",
    { address = "127.0.0.1:{both}", tls = true, proxy_protocol = true },
    { address = "127.0.0.1:{tls}", tls = true },
    { address = "127.0.0.1:{proxy}", proxy_protocol = true },
]
trusted_proxies = "127.0.0.1"
metrics = "127.0.0.1:{metrics}"
%(user)s
[tls]
certificates = [ { certificate = "%(files)s/one.pem", key = "%(files)s/one.key" } ]
http3 = true
[[app]]
root = "%(root)s"
hosts = ["a.example"]
workers = 1
[[app]]
name = "below"
root = "%(root)s"
hosts = ["b.example"]
path = "/below"
workers = 1
"""


@pytest.fixture(scope="module")
def files() -> Iterator[pathlib.Path]:
    # Where www-data can read the site.
    with tempfile.TemporaryDirectory() as directory:
        made = pathlib.Path(directory)
        made.chmod(0o755)
        site.make(made)
        self_signed(made, "one", ["a.example", "b.example"])
        yield made


@pytest.fixture(scope="module")
def hayate(hayate_command, files) -> Iterator[TlsHayate]:
    ports = {name: free_port() for name in ("port", "tls", "proxy", "both", "metrics")}
    with TlsHayate(CONFIG % {"user": USER, "files": files, "root": files / "site"}, ports) as running:
        yield running


def plain(hayate: TlsHayate, host: str, path: str, proxied: bool = False) -> tuple[int, str | None]:
    with socket.create_connection(("127.0.0.1", hayate.ports["proxy" if proxied else "port"]), timeout=60) as tcp:
        header = "PROXY TCP4 192.0.2.9 192.0.2.1 4711 80\r\n" if proxied else ""
        tcp.sendall(f"{header}GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = http.client.HTTPResponse(tcp)
        answer.begin()
        return answer.status, answer.getheader("location")


def test_visitors_are_sent_where_they_can_connect_or_to_the_port_that_is_named(hayate, files) -> None:
    def over_tls() -> dict[str, str]:
        with connect(hayate.ports["tls"], "a.example", context(files / "one.pem")) as tls:
            status, headers, _ = get(tls)
            assert status == 200
            return headers
    tls = hayate.ports["tls"]
    for proxied in (False, True):
        assert plain(hayate, "a.example", "/a?b", proxied) == (301, f"https://a.example:{tls}/a?b")
    assert over_tls()["alt-svc"] == f'h3=":{tls}"; ma=86400'
    config = hayate._config
    text = config.read_text()
    try:
        for port, said in ((443, ""), (4443, ":4443")):
            config.write_text(text.replace("[tls]\n", f"[tls]\npublic_port = {port}\n"))
            assert hayate.reload().returncode == 0
            for proxied in (False, True):
                assert plain(hayate, "a.example:8080", "/a?b", proxied) == (301, f"https://a.example{said}/a?b")
            assert over_tls()["alt-svc"] == f'h3=":{port}"; ma=86400'
    finally:
        config.write_text(text)
        assert hayate.reload().returncode == 0


def test_nobody_is_sent_to_a_host_that_no_application_has(hayate, files) -> None:
    for host, path in [("evil.example", "/"), ("b.example", "/"), ("b.example", "/belowed"), ("127.0.0.1", "/")]:
        assert plain(hayate, host, path) == (404, None), (host, path)
    assert plain(hayate, "b.example", "/below/x")[0] == 301
    with connect(hayate.ports["tls"], "b.example", context(files / "one.pem")) as tls:
        assert get(tls, "/", "b.example")[0] == 404


def test_who_is_turned_away_is_counted_and_in_the_log_once_for_each_reason(hayate) -> None:
    def turned_away() -> int:
        connection = http.client.HTTPConnection("127.0.0.1", hayate.ports["metrics"], timeout=60)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        return int(next(line.split()[1] for line in text.splitlines() if line.startswith("hayate_connections_turned_away_total")))

    def ends(source: str, words: bytes) -> None:
        with socket.socket() as tcp:
            tcp.settimeout(60)
            tcp.bind((source, 0))
            tcp.connect(("127.0.0.1", hayate.ports["proxy"]))
            try:
                tcp.sendall(words)
                while tcp.recv(4096):
                    pass
            except ConnectionError:
                pass

    before = turned_away()
    for _ in range(3):
        ends("127.0.0.9", b"PROXY TCP4 192.0.2.9 192.0.2.1 4711 80\r\nGET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
        ends("127.0.0.1", b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
    # Somebody who looks whether anybody listens.
    socket.create_connection(("127.0.0.1", hayate.ports["proxy"]), timeout=60).close()
    assert turned_away() == before + 6
    end = time.monotonic() + 60
    while hayate.log().count("turned away") < 2:
        assert time.monotonic() < end
        time.sleep(0.1)
    lines = [line for line in hayate.log().splitlines() if "turned away" in line]
    assert len(lines) == 2 and all("WARN" in line for line in lines), lines
    untrusted, malformed = lines if "trusted_proxies" in lines[0] else lines[::-1]
    assert "127.0.0.9" in untrusted and "a proxy belongs into trusted_proxies (1 times" in untrusted
    assert "127.0.0.1" in malformed and "found none that is right: no PROXY header (1 times" in malformed
