"""The load generator as its tests run it, and the servers that it is aimed at."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pathlib
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from lib.process import Server, accepts, free_port
from lib.servers import hayate_binary
from lib.tls import issued, self_signed

NGINX_CONF = """
daemon off;
worker_processes 1;
pid {dir}/nginx.pid;
error_log {dir}/nginx-error.log error;
events {{ worker_connections 2048; }}
http {{
    access_log off;
    default_type application/json;
    keepalive_requests 1000000000;
    client_body_temp_path {dir}/body;
    proxy_temp_path {dir}/proxy;
    fastcgi_temp_path {dir}/fastcgi;
    uwsgi_temp_path {dir}/uwsgi;
    scgi_temp_path {dir}/scgi;
    limit_req_zone $binary_remote_addr zone=rate:1m rate=500r/s;
    ssl_certificate {dir}/localhost.pem;
    ssl_certificate_key {dir}/localhost.key;
    ssl_protocols TLSv1.2 TLSv1.3;
    server {{
        listen 127.0.0.1:{port} backlog=2048;
        listen 127.0.0.1:{tls} backlog=2048 ssl http2;
        listen 127.0.0.1:{tls1} backlog=2048 ssl;
        listen 127.0.0.1:{h2c} backlog=2048 http2;
        location = / {{ return 200 '{{"status":"OK"}}'; }}
        location = /missing {{ return 404 'missing'; }}
        location = /echo {{ return 200 '$request_method $http_x_test $content_length'; }}
        location = /500-per-second {{
            limit_req zone=rate burst=1000;
            root {dir};
            try_files /file =404;
        }}
        location = /file {{ root {dir}; }}
        location = /protocol {{ return 200 '$server_protocol $http_host $ssl_session_reused'; }}
        location = /compressed {{
            gzip on;
            gzip_types *;
            gzip_comp_level 9;
            root {dir};
            try_files /text =404;
        }}
    }}
    server {{
        listen 127.0.0.1:{few} http2;
        keepalive_requests 500;
        location / {{ return 200 'OK'; }}
    }}
}}
"""


def generator() -> pathlib.Path:
    """The command under test, beside the `hayate` under test."""
    command = hayate_binary().parent / "hayate-lab"
    if not command.exists():
        pytest.skip(f"{command} is not built")
    return command


class Nginx(Server):
    """nginx with answers of its own: `/`, a file of 10 kB, `/500-per-second`, which it serves no faster than that,
    and `/compressed`, which costs it a hundred times as much as `/`.

    `url` is HTTP/1.1, `tls` TLS with both versions of HTTP, `tls1` TLS without HTTP/2, `h2c` HTTP/2 with prior
    knowledge, `few` the same with 500 requests for each connection;
    `authority` is the file with which its certificate can be checked, for the host `localhost`."""

    name = "nginx"

    def __init__(self, prefix: Sequence[str] = ()) -> None:
        super().__init__()
        self._prefix = list(prefix)
        self.authority, _ = self_signed(self.dir, "authority", ["authority"])
        issued(self.dir, "localhost", ["localhost"], "authority", "serverAuth")
        (self.dir / "file").write_bytes(b"0123456789" * 1000)
        (self.dir / "text").write_text("\n".join(str(number * number) for number in range(4000)))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> Sequence[str]:
        self.port, tls, tls1, h2c, few = (free_port() for _ in range(5))
        ports = {"port": self.port, "tls": tls, "tls1": tls1, "h2c": h2c, "few": few}
        self.tls, self.tls1 = f"https://localhost:{tls}", f"https://localhost:{tls1}"
        self.h2c, self.few = f"http://127.0.0.1:{h2c}", f"http://127.0.0.1:{few}"
        (self.dir / "nginx.conf").write_text(NGINX_CONF.format(dir=self.dir, **ports))
        return [
            *self._prefix,
            *["/usr/sbin/nginx", "-e", str(self.dir / "nginx-error.log"), "-c", str(self.dir / "nginx.conf")],
        ]

    def ready(self) -> bool:
        return accepts(self.port)


class Stalling:
    """Answers at once, but for the last `stall` seconds of each `period`: what comes then is answered at their end.

    The periods count from the moment `begin()` is called. As a context manager it runs in a thread of its own.
    `late`: the seconds, at most, by which something in that thread came too late since: what the machine's other work has cost.
    """

    def __init__(self, period: float, stall: float) -> None:
        self.period, self.stall = period, stall
        self._begun, self.late = time.monotonic(), 0.0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def begin(self) -> None:
        """A new period begins now."""
        self._begun, self.late = time.monotonic(), 0.0

    async def _watch(self) -> None:
        while True:
            due = time.monotonic() + 0.01
            await asyncio.sleep(0.01)
            self.late = max(self.late, time.monotonic() - due)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                phase = (time.monotonic() - self._begun) % self.period
                if phase > self.period - self.stall:
                    await asyncio.sleep(self.period - phase)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK")
        writer.close()

    def __enter__(self) -> Stalling:
        self._thread.start()
        start = asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=2048)
        server = asyncio.run_coroutine_threadsafe(start, self._loop).result(10)
        asyncio.run_coroutine_threadsafe(self._watch(), self._loop)
        self.port = server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        return self

    def __exit__(self, *_: object) -> None:
        async def end() -> None:
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


@contextlib.contextmanager
def silent() -> Iterator[str]:
    """The URL of a server that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"


def start(*arguments: str, prefix: Sequence[str] = (), **options: Any) -> subprocess.Popen[str]:
    """Starts `hayate-lab load`."""
    command = [*prefix, str(generator()), "load", *arguments]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen(command, text=True, env={**os.environ, "COLUMNS": "120"}, **pipes)


def run(*arguments: str, status: int = 0, stdin: str = "", prefix: Sequence[str] = ()) -> tuple[str, str]:
    """Runs `hayate-lab load` to its end, and gives back what it printed: output and errors."""
    process = start(*arguments, prefix=prefix)
    try:
        output, errors = process.communicate(stdin, timeout=120)
    finally:
        process.kill()
    assert process.returncode == status, f"status {process.returncode}\n{output}\n{errors}"
    return output, errors


def load(*arguments: str, status: int = 0, stdin: str = "", prefix: Sequence[str] = ()) -> dict[str, Any]:
    """Runs `hayate-lab load --json` to its end, and gives back its report."""
    return json.loads(run(*arguments, "--json", status=status, stdin=stdin, prefix=prefix)[0])
