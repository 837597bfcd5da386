"""The servers that are compared, each as one would run it for speed, and all with the same PHP settings.

Every one of them is pinned to one core, keeps connections alive without a limit, writes no access log, and has the same
number of PHP processes.
"""

from __future__ import annotations

import os
import pathlib
import shutil
from collections.abc import Callable, Sequence

from lib.process import Server, accepts, accepts_unix, free_port
from lib.servers import PHP_VERSION, Hayate, debian_fastcgi_conf

from bench.workloads import Workload

#: PHP's settings on every side, at the level of php.ini. OPcache as a production server has it.
INI = {
    "opcache.enable": "1",
    "opcache.memory_consumption": "128",
    "opcache.max_accelerated_files": "10000",
    "opcache.validate_timestamps": "1",
    "opcache.revalidate_freq": "2",
    "realpath_cache_size": "4096K",
    "realpath_cache_ttl": "600",
    "xdebug.mode": "off",
    # wrk leaves in the middle of some requests when its time is up, which is not to end a worker.
    "ignore_user_abort": "1",
}

_ROOT = os.geteuid() == 0

_NGINX = """
daemon off;
worker_processes 1;
pid {dir}/nginx.pid;
error_log {dir}/nginx-error.log error;
{user}
events {{ worker_connections 1024; }}
http {{
    include /etc/nginx/mime.types;
    default_type application/octet-stream;
    access_log off;
    keepalive_timeout 75s;
    keepalive_requests 1000000000;
    tcp_nodelay on;
    client_body_temp_path {dir}/body;
    proxy_temp_path {dir}/proxy;
    fastcgi_temp_path {dir}/fastcgi;
    uwsgi_temp_path {dir}/uwsgi;
    scgi_temp_path {dir}/scgi;
    server {{
        listen 127.0.0.1:{port};
        server_name localhost;
        {locations}
    }}
}}
"""

#: A connection to php-fpm for each request, as nginx does by default. `keepalive` in an upstream cost 21 µs in place of
#: 25 for W1, but a kept connection occupies a whole PHP process: of 100 clients the few that held one were served at
#: once (p50 80 µs), the others not at all, and throughput fell by 5-35 %. Nobody could run a site that way.
_PHP_LOCATIONS = """
        root {docroot};
        index index.php;
        location / {{ try_files $uri $uri/ /index.php?$query_string; }}
        location ~ \\.php$ {{
            try_files $uri =404;
            include {dir}/fastcgi.conf;
            fastcgi_pass unix:{dir}/fpm.sock;
        }}
"""

_FIXED_LOCATIONS = """
        location / { default_type application/json; return 200 '{"status":"OK"}'; }
"""

_FPM = """
[global]
error_log = {dir}/fpm.log
daemonize = no
[www]
{user}
listen = {dir}/fpm.sock
listen.mode = 0666
listen.backlog = 1024
pm = static
pm.max_children = {workers}
{env}
"""


def pinned(core: int) -> list[str]:
    """A command prefix that keeps a program and its children on one core."""
    return ["/usr/bin/taskset", "--cpu-list", str(core)]


class Nginx(Server):
    """nginx alone, answering with a constant: the floor for any server that has to parse HTTP."""

    name = "nginx"

    def __init__(self, core: int) -> None:
        super().__init__()
        self.core = core

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def locations(self) -> str:
        """Configuration inside the server block."""
        return _FIXED_LOCATIONS

    def command(self) -> Sequence[str | os.PathLike[str]]:
        self.port = free_port()
        (self.dir / "nginx.conf").write_text(
            _NGINX.format(
                dir=self.dir,
                port=self.port,
                user="user www-data;" if _ROOT else "",
                locations=self.locations(),
            )
        )
        files = ["-e", f"{self.dir}/nginx-error.log", "-c", f"{self.dir}/nginx.conf"]
        return [*pinned(self.core), "/usr/sbin/nginx", *files]

    def ready(self) -> bool:
        return accepts(self.port)

    def pids(self) -> list[int]:
        """Processes whose children count as well."""
        return [self.pid]


class _Fpm(Server):
    name = "php-fpm"

    def __init__(self, directory: pathlib.Path, core: int, load: Workload, workers: int) -> None:
        self.process = None
        self.dir = directory
        self.core = core
        self._output = directory / "fpm.out"
        self._ini = {**INI, **load.ini}
        user = "user = www-data\ngroup = www-data" if _ROOT else ""
        env = "\n".join(f'env[{name}] = "{value}"' for name, value in load.env.items())
        (directory / "fpm.conf").write_text(_FPM.format(dir=directory, user=user, workers=workers, env=env))

    def command(self) -> Sequence[str | os.PathLike[str]]:
        ini = [argument for key, value in self._ini.items() for argument in ("-d", f"{key}={value}")]
        program = f"/usr/sbin/php-fpm{PHP_VERSION}"
        return [*pinned(self.core), program, "--nodaemonize", "--fpm-config", f"{self.dir}/fpm.conf", *ini]

    def ready(self) -> bool:
        return accepts_unix(self.dir / "fpm.sock")


class NginxFpm(Nginx):
    """nginx and php-fpm on a unix socket."""

    def __init__(self, core: int, load: Workload, workers: int) -> None:
        super().__init__(core)
        self.fpm = _Fpm(self.dir, core, load, workers)
        self._docroot = load.docroot
        (self.dir / "fastcgi.conf").write_text(debian_fastcgi_conf())

    def locations(self) -> str:
        return _PHP_LOCATIONS.format(dir=self.dir, docroot=self._docroot)

    def start(self) -> NginxFpm:
        self.fpm.start()
        try:
            return super().start()
        except BaseException:
            self.fpm.kill()
            raise

    def stop(self, *arguments: int) -> int:
        try:
            return super().stop(*arguments)
        finally:
            self.fpm.stop()

    def kill(self) -> None:
        super().kill()
        self.fpm.kill()

    def pids(self) -> list[int]:
        return [self.pid, self.fpm.pid]


class PinnedHayate(Hayate):
    """Hayate on one core: `classic`, or with the application's worker script and its state `kept` or `rewound`.

    `recognised`: the project is booted by the script that comes with Hayate, and rewound.
    """

    def __init__(self, core: int, load: Workload, workers: int, mode: str) -> None:
        args = ["--user", "www-data"] if _ROOT else []
        for name, value in load.env.items():
            args += ["--env", f"{name}={value}"]
        worker = None
        if mode == "classic":
            args += ["--mode", "classic"]
        elif mode == "kept":
            worker = load.worker
            args += ["--rewind", "off"]
        else:
            worker = load.worker if mode == "rewound" else None
            args += ["--mode", "worker", "--rewind", "on", *["--warmup", load.path] * 3]
        super().__init__(load.root, ini={**INI, **load.ini}, workers=workers, worker=worker, args=args)
        if _ROOT:
            # It removes its pid file when it ends, as the user it has become.
            shutil.chown(self.dir, "www-data")
        self.core = core
        self.mode = mode

    def command(self) -> Sequence[str | os.PathLike[str]]:
        return [*pinned(self.core), *super().command()]

    def pids(self) -> list[int]:
        """Processes whose children count as well."""
        return [self.pid]

    def rewinds(self) -> int:
        """How often a worker was put back since the start."""
        (app,) = self.status()["apps"]
        return app["rewind"]["rewinds"] if app["rewind"] else 0


Bench = Nginx | PinnedHayate

#: By name: makes the server for (core, workload, number of PHP processes).
ENGINES: dict[str, Callable[[int, Workload, int], Bench]] = {
    "hayate worker": lambda core, load, workers: PinnedHayate(core, load, workers, "kept"),
    "hayate rewind": lambda core, load, workers: PinnedHayate(core, load, workers, "rewound"),
    "hayate recognised": lambda core, load, workers: PinnedHayate(core, load, workers, "recognised"),
    "hayate classic": lambda core, load, workers: PinnedHayate(core, load, workers, "classic"),
    "nginx + php-fpm": lambda core, load, workers: NginxFpm(core, load, workers),
    "nginx return 200": lambda core, load, workers: Nginx(core),
}
