"""A rolling replacement as deploy/kubernetes does it, seen by visitors: no request fails, and no session is lost.

Two Hayates with sessions in one Redis stand behind nginx, which retries nothing: what a server does not answer is a failure. Each is replaced
in turn while visitors come, in the order of a cluster: the new one is ready, the balancer learns of it and sends nothing more to the old one, and
a moment later (preStop) the old one gets SIGTERM, amid requests that take seconds.

HAYATE_ROLLING_REQUESTS=100000 plays as many requests; it replaces servers until all are made.
"""

from __future__ import annotations

import http.client
import os
import pathlib
import subprocess
import threading
import time
from collections.abc import Sequence

from lib.process import Server, accepts, free_port, temporary_directory, wait_until
from lib.servers import ROOT, Hayate, Redis

REQUESTS = int(os.environ.get("HAYATE_ROLLING_REQUESTS", "1500"))
#: At least, each of the two servers being replaced every other time.
REPLACEMENTS = 4
VISITORS, PATIENT = 6, 6
#: Seconds: how long pages of the patient take, and how long an old server serves on once the balancer sends it nothing more.
SLOW, PRE_STOP = 4, 1

PAGE = """<?php
session_start();
$_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1;
$n = $_SESSION['n'];
session_write_close();
if (isset($_GET['slow'])) { sleep((int) $_GET['slow']); }
header('X-Server: '.getenv('NAME'));
echo $n, str_repeat(' ', 5000);
"""

NGINX = """
daemon off;
worker_processes 1;
pid {dir}/nginx.pid;
error_log {dir}/nginx-error.log warn;
{user}
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/fastcgi;
    uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;
    upstream hayate {{ {servers} keepalive 8; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://hayate;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $host;
            proxy_next_upstream off;
        }}
    }}
}}
"""


class Balancer(Server):
    """nginx before servers that come and go."""

    name = "balancer"

    def __init__(self, servers: Sequence[Hayate]) -> None:
        super().__init__()
        self.port = free_port()
        self._write(servers)

    def _write(self, servers: Sequence[Hayate]) -> None:
        lines = " ".join(f"server 127.0.0.1:{server.port} max_fails=0;" for server in servers)
        user = "user www-data;" if ROOT else ""
        (self.dir / "nginx.conf").write_text(NGINX.format(dir=self.dir, port=self.port, servers=lines, user=user))

    def command(self) -> Sequence[str]:
        return ["/usr/sbin/nginx", "-e", str(self.dir / "nginx-error.log"), "-c", str(self.dir / "nginx.conf")]

    def ready(self) -> bool:
        return accepts(self.port)

    def _workers(self) -> set[int]:
        children = pathlib.Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return {int(pid) for pid in children.split()}

    def lead_to(self, servers: Sequence[Hayate]) -> None:
        """Returns when requests that come are sent there. What it has sent to others goes on."""
        before = self._workers()
        self._write(servers)
        subprocess.run([*self.command(), "-s", "reload"], check=True, timeout=60)
        assert wait_until(lambda: self._workers() - before, 60), "nginx has no new workers"

    def log(self) -> str:
        error = self.dir / "nginx-error.log"
        return super().log() + (error.read_text(errors="replace") if error.exists() else "")


class Visitors:
    """Each with a session of its own, whose pages count its visits; the patient ask for pages that take long."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self.done, self.failed, self.servers = 0, [], set()
        asked = ["/"] * VISITORS + [f"/?slow={SLOW}"] * PATIENT
        self._threads = [threading.Thread(target=self._visit, args=(target,), daemon=True) for target in asked]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Returns when what they have asked for is answered."""
        self._stop.set()
        for thread in self._threads:
            thread.join(90)
            assert not thread.is_alive(), "a visitor waits for an answer"

    def _visit(self, target: str) -> None:
        cookie, count = None, 0
        # A moment between two pages, which the servers need, too, where all share two processors.
        while not self._stop.wait(0.02):
            count += 1
            try:
                # A connection each: one that is kept, nginx closes when it is reloaded, whatever stands behind it.
                connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
                connection.request("GET", target, headers={"Cookie": cookie} if cookie else {})
                answer = connection.getresponse()
                body = answer.read()
                connection.close()
                assert answer.status == 200 and len(body) == 5000 + len(str(count)), (answer.status, body[:200])
                assert int(body) == count, f"visit {count} is the session's {int(body)}"
                cookie = cookie or answer.headers["Set-Cookie"].split(";")[0]
                with self._lock:
                    self.done += 1
                    self.servers.add(answer.headers["X-Server"])
            except Exception as fault:
                self.failed.append(f"{time.strftime('%H:%M:%S')} visit {count}: {fault!r}")
                return


def busy(server: Hayate) -> int:
    return sum(worker["state"] != "idle" for worker in server.status()["apps"][0]["workers"])


def test_a_rolling_replacement_fails_no_request_and_loses_no_session() -> None:
    site = temporary_directory("rolling")
    (site / "index.php").write_text(PAGE)
    with Redis() as redis:
        made = 0

        def another() -> Hayate:
            nonlocal made
            made += 1
            config = f"""
                drain_timeout = "30s"
                [[app]]
                root = "{site}"
                workers = "2-8"
                env = {{ NAME = "{made}" }}
                [app.ini]
                "session.save_handler" = "redis"
                "session.save_path" = "tcp://127.0.0.1:{redis.port}"
            """
            return Hayate(config=config, user="www-data" if ROOT else None).start()

        servers = [another(), another()]
        try:
            with Balancer(servers) as balancer:
                visitors = Visitors(balancer.port)
                replaced, amid, until = 0, 0, time.monotonic() + 300 + REQUESTS / 5
                while (replaced < REPLACEMENTS or visitors.done < REQUESTS) and not visitors.failed:
                    new = another()
                    old, servers = servers[0], [servers[1], new]
                    balancer.lead_to(servers)
                    time.sleep(PRE_STOP)
                    amid += busy(old) > 0
                    assert old.stop() == 0, old.log()
                    replaced += 1
                    assert time.monotonic() < until, f"only {visitors.done} requests were answered in time"
                visitors.end()
                print(f"{visitors.done} requests, {replaced} replacements, {amid} of them amid requests, {len(visitors.failed)} failed")
                assert not visitors.failed, visitors.failed[:5]
                assert len(visitors.servers) > REPLACEMENTS, "each server has answered visitors"
                assert amid > 0, f"of {replaced} servers {amid} had something to finish"
        finally:
            for server in servers:
                server.stop()
