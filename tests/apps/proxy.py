"""nginx with TLS in front of Hayate, configured by the block of docs/deployment.md: what is written there is tested."""

from __future__ import annotations

import pathlib
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest import mock

import urllib3.util.connection
from lib.process import Server, accepts, free_port
from lib.servers import REPOSITORY, ROOT

#: Of the example in the docs.
HOST = "shop.example.org"
SOCKET = "/run/hayate/http.sock"

CONF = """
daemon off;
worker_processes 1;
pid {dir}/nginx.pid;
error_log {dir}/nginx-error.log info;
{user}
events {{ worker_connections 128; }}
http {{
    access_log off;
    client_body_temp_path {dir}/body;
    proxy_temp_path {dir}/proxy;
    fastcgi_temp_path {dir}/fastcgi;
    uwsgi_temp_path {dir}/uwsgi;
    scgi_temp_path {dir}/scgi;
{documented}
}}
"""


def documented(replacements: dict[str, str]) -> str:
    """The first nginx block of docs/deployment.md with what depends on the machine replaced; each has to occur."""
    blocks = re.findall(r"```nginx\n(.*?)```", (REPOSITORY / "docs/deployment.md").read_text(), re.DOTALL)
    text = blocks[0]
    for old, new in replacements.items():
        assert old in text, f"docs/deployment.md does not say {old!r} any more"
        text = text.replace(old, new)
    return text


class NginxProxy(Server):
    """nginx on a free port, for https://shop.example.org, passing requests to a unix socket."""

    name = "nginx-proxy"
    url = f"https://{HOST}"

    def __init__(self, socket: pathlib.Path) -> None:
        super().__init__()
        self._socket = socket
        self.certificate = self.dir / "certificate.pem"

    def command(self) -> Sequence[str]:
        self.port = free_port()
        subprocess.run(
            ["/usr/bin/openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
            + ["-subj", f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST}", "-days", "2"]
            + ["-keyout", str(self.dir / "key.pem"), "-out", str(self.certificate)],
            check=True,
            capture_output=True,
        )
        block = documented({
            SOCKET: str(self._socket),
            "listen 443 ssl http2": f"listen 127.0.0.1:{self.port} ssl http2",
            f"/etc/letsencrypt/live/{HOST}/fullchain.pem": str(self.certificate),
            f"/etc/letsencrypt/live/{HOST}/privkey.pem": str(self.dir / "key.pem"),
            # Visitors use the usual port, see resolved().
            "$server_port": "443",
        })
        conf = CONF.format(dir=self.dir, user="user www-data;" if ROOT else "", documented=block)
        (self.dir / "nginx.conf").write_text(conf)
        return ["/usr/sbin/nginx", "-e", str(self.dir / "nginx-error.log"), "-c", str(self.dir / "nginx.conf")]

    def ready(self) -> bool:
        return accepts(self.port)

    @contextmanager
    def resolved(self) -> Iterator[None]:
        """Meanwhile, connections of this process to the host's usual port come here."""
        connect = urllib3.util.connection.create_connection

        def create_connection(address: tuple[str, int], *arguments: object, **more: object):
            return connect(("127.0.0.1", self.port) if address == (HOST, 443) else address, *arguments, **more)

        with mock.patch("urllib3.util.connection.create_connection", create_connection):
            yield
