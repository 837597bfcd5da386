"""The servers the suite runs against: nginx + php-fpm as the reference, Hayate, MariaDB, Redis.

Each is the distribution's real program in the foreground, in a temporary directory, on a free loopback port, and
each is a context manager:

    with NginxFpm(docroot) as reference, Hayate(docroot) as hayate:
        requests.get(reference.url + "/index.php")
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence

from . import over
from .process import PATIENCE, Server, ServerError, accepts, accepts_unix, free_port, running

__all__ = [
    "GENERIC_WORKER",
    "PHP",
    "PHP_VERSION",
    "REPOSITORY",
    "Hayate",
    "MariaDB",
    "NginxFpm",
    "Redis",
    "Server",
    "ServerError",
    "free_port",
    "hayate_binary",
    "running",
]

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
#: A worker script that includes the requested .php file, as php-fpm would run it: any docroot in worker mode.
GENERIC_WORKER = pathlib.Path(__file__).resolve().with_name("generic_worker.php")
#: The same for rewinding: it puts nothing back by itself.
REWIND_WORKER = pathlib.Path(__file__).resolve().with_name("rewind_worker.php")

#: The PHP that is tested: that of the host which `make` passes on.
PHP_VERSION = os.environ.get("HAYATE_PHP", "8.2")
PHP = f"/usr/bin/php{PHP_VERSION}"
ROOT = os.geteuid() == 0

#: Xdebug is installed but off: it would rewrite error output and slow everything down, in every server alike.
BASE_INI = {"xdebug.mode": "off"}

NGINX_CONF = """
daemon off;
worker_processes 1;
pid {dir}/nginx.pid;
error_log {dir}/nginx-error.log info;
{user}
events {{ worker_connections 512; }}
http {{
    include /etc/nginx/mime.types;
    default_type application/octet-stream;
    access_log off;
    client_body_temp_path {dir}/body;
    proxy_temp_path {dir}/proxy;
    fastcgi_temp_path {dir}/fastcgi;
    uwsgi_temp_path {dir}/uwsgi;
    scgi_temp_path {dir}/scgi;
    client_max_body_size {max_body};
    large_client_header_buffers 4 32k;
    fastcgi_buffer_size 64k;
    fastcgi_buffers 16 64k;
    server {{
        listen 127.0.0.1:{port}{tls};
        server_name {server_name};
        root {docroot};
        index {index};
        {extra}
        location ~ /\\.(?!well-known) {{ deny all; }}
        location / {{ try_files $uri $uri/ {fallback}; }}
        location ~ [^/]\\.php(/|$) {{
            fastcgi_split_path_info ^(.+?\\.php)(/.*)$;
            try_files $fastcgi_script_name =404;
            # try_files empties $fastcgi_path_info, so it is kept in a variable of its own, as Debian's snippet does.
            set $path_info $fastcgi_path_info;
            fastcgi_param PATH_INFO $path_info;
            fastcgi_index index.php;
            include {dir}/fastcgi.conf;
            fastcgi_pass unix:{dir}/fpm.sock;
        }}
    }}
}}
"""

FPM_CONF = """
[global]
error_log = {dir}/fpm.log
log_limit = 65536
daemonize = no
[www]
{user}
listen = {dir}/fpm.sock
listen.mode = 0666
pm = static
pm.max_children = {workers}
catch_workers_output = yes
decorate_workers_output = no
{extra}
"""


def debian_fastcgi_conf() -> str:
    """Debian's /etc/nginx/fastcgi.conf without its HTTP_HOST line.

    Debian's security update replaces the client's Host header with `$host`, which loses the port. nginx's own file
    does not, and an application that builds absolute links behind a port other than 80 needs the port.
    """
    text = pathlib.Path("/etc/nginx/fastcgi.conf").read_text()
    return re.sub(r"(?m)^fastcgi_param\s+HTTP_HOST\s.*\n", "", text)


def ini_arguments(ini: Mapping[str, str | int]) -> list[str]:
    """php-fpm's `-d` arguments: the same level as php.ini, so .user.ini and ini_set() still win."""
    arguments = []
    for key, value in ini.items():
        arguments += ["-d", f"{key}={value}"]
    return arguments


class _Fpm(Server):
    name = "php-fpm"

    def __init__(self, directory: pathlib.Path, ini: Mapping[str, str | int], workers: int, extra: str) -> None:
        self.process = None
        self.dir = directory
        self._output = directory / "php-fpm.out"
        self._ini = {**BASE_INI, **ini}
        user = "user = www-data\ngroup = www-data" if ROOT else ""
        (directory / "fpm.conf").write_text(FPM_CONF.format(dir=directory, user=user, workers=workers, extra=extra))

    def command(self) -> Sequence[str]:
        return [
            f"/usr/sbin/php-fpm{PHP_VERSION}",
            "--nodaemonize",
            "--fpm-config",
            str(self.dir / "fpm.conf"),
            *ini_arguments(self._ini),
        ]

    def ready(self) -> bool:
        return accepts_unix(self.dir / "fpm.sock")


def _nginx_tls() -> str:
    """What follows nginx's address when the run goes over TLS."""
    if over.protocol == over.PLAIN:
        return ""
    chain, key = over.certificate()
    return f" ssl http2; ssl_protocols TLSv1.2 TLSv1.3; ssl_certificate {chain}; ssl_certificate_key {key}"


class NginxFpm(Server):
    """Real nginx in front of real php-fpm, configured the way the field does it with Debian's files.

    `ini` is given to php-fpm at the level of php.ini; `fpm` are extra directives of the pool section;
    `front_controller` is the script nginx falls back to for a path that is no file, such as "/index.php";
    `extra` is nginx configuration for the server block. `max_body` is nginx's own limit, far above PHP's.
    """

    name = "nginx"

    def __init__(
        self,
        docroot: str | os.PathLike[str],
        *,
        ini: Mapping[str, str | int] = {},
        fpm: Mapping[str, str | int] = {},
        front_controller: str | None = None,
        index: str = "index.php index.html",
        server_name: str = "localhost",
        workers: int = 2,
        max_body: str = "2g",
        extra: str = "",
    ) -> None:
        super().__init__()
        self.docroot = pathlib.Path(docroot).resolve()
        pool = "\n".join(f"{key} = {value}" for key, value in fpm.items())
        self.fpm = _Fpm(self.dir, ini, workers, pool)
        (self.dir / "fastcgi.conf").write_text(debian_fastcgi_conf())
        self._values = {
            "dir": self.dir,
            "docroot": self.docroot,
            "index": index,
            "server_name": server_name,
            "max_body": max_body,
            "extra": extra,
            "user": "user www-data;" if ROOT else "",
            "fallback": f"{front_controller}?$query_string" if front_controller else "=404",
        }

    @property
    def url(self) -> str:
        return f"{'http' if over.protocol == over.PLAIN else 'https'}://127.0.0.1:{self.port}"

    def command(self) -> Sequence[str]:
        self.port = free_port()
        (self.dir / "nginx.conf").write_text(NGINX_CONF.format(port=self.port, tls=_nginx_tls(), **self._values))
        if over.protocol != over.PLAIN:
            over.of_this_run.add(self.port)
        return ["/usr/sbin/nginx", "-e", str(self.dir / "nginx-error.log"), "-c", str(self.dir / "nginx.conf")]

    def ready(self) -> bool:
        return accepts(self.port)

    def start(self):
        self.fpm.start()
        try:
            return super().start()
        except BaseException:
            self.fpm.kill()
            raise

    def stop(self, sig: int = signal.SIGTERM) -> int:
        try:
            return super().stop(sig)
        finally:
            self.fpm.stop()

    def kill(self) -> None:
        super().kill()
        self.fpm.kill()

    def log(self) -> str:
        """What nginx and php-fpm logged; PHP's own messages are among nginx's lines."""
        files = [self._output, self.dir / "nginx-error.log", self.dir / "php-fpm.out", self.dir / "fpm.log"]
        return "".join(file.read_text(errors="replace") for file in files if file.exists())


def hayate_binary() -> pathlib.Path:
    """The command under test: $HAYATE_BIN, else the release build of this checkout."""
    return pathlib.Path(os.environ.get("HAYATE_BIN") or REPOSITORY / "target/release/hayate")


#: Where the part of a configuration begins that is the run's (`--over`).
OVER_TLS = "\n# over TLS\n"


#: How the log says that something panicked: by the hook, and before there is one.
OWN_FAULTS = ("a fault of Hayate's own", "' panicked at ")


class Hayate(Server):
    """`hayate serve ROOT` on a free loopback port, with its control socket and pid file in a temporary directory.

    `config` is the text of a hayate.toml or the path of one; `worker` is the worker script (worker mode);
    `workers` a number or "MIN-MAX"; `args` further flags, appended last; `env` is added to the environment.
    `access_log` is the flag's value; None leaves it to the configuration.
    `user` is whom the server becomes, when it is started as root; its temporary directory is theirs then.
    `log()` is all that the server wrote to stderr and stdout.
    """

    name = "hayate"

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        *,
        args: Sequence[str] = (),
        config: str | os.PathLike[str] | None = None,
        worker: str | os.PathLike[str] | None = None,
        workers: int | str | None = None,
        ini: Mapping[str, str | int] = {},
        env: Mapping[str, str] = {},
        access_log: str | None = "off",
        user: str | None = None,
    ) -> None:
        super().__init__()
        if user is not None:
            shutil.chown(self.dir, user)
        self._user = user
        self.root = pathlib.Path(root).resolve() if root is not None else None
        self.control = self.dir / "control.sock"
        self.pid_file = self.dir / "hayate.pid"
        self.access_log = access_log
        self._args = [str(arg) for arg in args]
        self._ini = {**BASE_INI, **ini}
        self._env = dict(env)
        self._worker = worker
        self._workers = workers
        self._speaks_tls: bool | None = None
        self._config: pathlib.Path | None = None
        if isinstance(config, str):
            self._config = self.dir / "hayate.toml"
            self._config.write_text(config)
        elif config is not None:
            self._config = pathlib.Path(config)

    @property
    def url(self) -> str:
        return f"{'https' if self.speaks_tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def speaks_tls(self) -> bool:
        """Whether the run's requests go over TLS, and its address is not the test's own affair. Settled when the server starts: a test may
        put a configuration there later that nobody can read."""
        if self._speaks_tls is None:
            self._speaks_tls = over.protocol != over.PLAIN and "--listen" not in self._args and not self._says_where()
        return self._speaks_tls

    def _says_where(self) -> bool:
        return self._config is not None and re.search(r"(?m)^(listen|\[tls\])", self._without_tls()) is not None

    def command(self) -> Sequence[str]:
        binary = hayate_binary()
        if not binary.exists():
            raise ServerError(f"{binary} does not exist: build it with `make`, or set HAYATE_BIN")
        self.port = free_port()
        self._speaks_tls = None
        command = [str(binary), "serve"]
        if self.root is not None:
            command.append(str(self.root))
        if not self.speaks_tls:
            command += ["--listen", f"127.0.0.1:{self.port}"]
        else:
            self._listen_with_tls()
        command += ["--control", str(self.control), "--pid-file", str(self.pid_file)]
        if self.access_log is not None:
            command += ["--access-log", self.access_log]
        if self._config is not None:
            command += ["--config", str(self._config)]
        if self._worker is not None:
            command += ["--worker", str(self._worker)]
        if self._workers is not None:
            command += ["--workers", str(self._workers)]
        if self._user is not None:
            command += ["--user", self._user]
        for key, value in self._ini.items():
            command += ["--ini", f"{key}={value}"]
        return command + self._args

    def _without_tls(self) -> str:
        """The configuration, as far as it is the test's."""
        assert self._config is not None
        text = self._config.read_text()
        return text.partition("\n")[2].partition(OVER_TLS)[0] if OVER_TLS in text else text

    def _listen_with_tls(self) -> None:
        """Puts the address into the configuration: into the very file, which tests change and ask for."""
        chain, key = over.certificate()
        over.of_this_run.add(self.port)
        if self._config is None:
            self._config = self.dir / "hayate-tls.toml"
            self._config.touch()
        listen = f'listen = [{{ address = "127.0.0.1:{self.port}", tls = true }}]\n'
        tls = f'{OVER_TLS}[tls]\ncertificates = [{{ certificate = "{chain}", key = "{key}" }}]\n'
        self._config.write_text(listen + self._without_tls() + tls)

    def spawn(self, env: dict[str, str] | None = None) -> None:
        super().spawn({**os.environ, **self._env, **(env or {})})

    def log(self) -> str:
        """Everything it has written, once it says no more for a moment: to look at, and for what is not to be there; see `logged`."""
        size = -1
        for _ in range(20):
            before, size = size, self._output.stat().st_size if self._output.exists() else 0
            if size == before:
                break
            time.sleep(0.05)
        return super().log()

    def ready(self) -> bool:
        try:
            # The command as well, once, when it has something to say.
            return accepts(self.port) and self.status() is not None and self.run("status").returncode == 0
        except ServerError:
            return False

    def run(self, *arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Runs a sub-command against this server's control socket, for example run("status", "--json")."""
        return subprocess.run(
            [str(hayate_binary()), *arguments, "--control", str(self.control)],
            capture_output=True,
            text=True,
            timeout=timeout * PATIENCE,
            check=False,
        )

    def _ask(self, path: str, timeout: float = 60) -> tuple[int, str]:
        """What its control socket answers. Tests look at it so often, while they wait, that a process for each took a fifth of their time."""
        with contextlib.closing(http.client.HTTPConnection("localhost")) as connection:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(timeout * PATIENCE)
            try:
                connection.sock.connect(str(self.control))
                connection.request("GET", path)
                answer = connection.getresponse()
                return answer.status, answer.read().decode()
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise ServerError(f"{self.control}{path}: {error!r}\n{self.log_tail()}") from error

    def metrics(self) -> str:
        """What its control socket says to Prometheus."""
        return self._ask("/metrics")[1]

    def status(self) -> dict:
        """What `hayate status --json` says; raises ServerError where that one ends with a failure."""
        code, text = self._ask("/status")
        if code != 200 or (status := json.loads(text))["state"] == "starting":
            raise ServerError(f"/status: {code} {text}")
        return status

    def family(self) -> dict[int, str]:
        """Its own processes: what a script has left running stays below the master, and may outlive it."""

        def is_own(pid: int) -> bool:
            try:
                # The master starts itself anew, by /proc/self/exe.
                return pathlib.Path(f"/proc/{pid}/comm").read_bytes().startswith((b"hayate", b"exe"))
            except OSError:
                return False

        return {pid: started for pid, started in super().family().items() if is_own(pid)}

    @property
    def front(self) -> int:
        """Process id of the front, which speaks HTTP; `pid` is the master's, to which signals go."""
        return self.status()["front"]

    def reload(self, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """`hayate reload`: returns when the new generation serves or was refused; see its return code."""
        return self.run("reload", timeout=timeout)

    def stop(self, sig: int = signal.SIGTERM) -> int:
        """Drains and stops; raises ServerError unless the exit is clean (status 0, no orphans, pid file gone), and when anything panicked."""
        already_stopped = self.process is None or self.process.returncode is not None
        status = super().stop(sig)
        # A panic costs one request, so that most tests would not see it.
        if faults := [line for line in super().log().splitlines() if any(word in line for word in OWN_FAULTS)]:
            raise ServerError("hayate met a fault of its own:\n" + "\n".join(faults[:10]))
        if not already_stopped:
            if status != 0:
                raise ServerError(f"hayate ended with {status} after signal {sig}:\n{self.log_tail()}")
            if self.pid_file.is_file():
                raise ServerError(f"hayate left its pid file behind:\n{self.log_tail()}")
        return status


class MariaDB(Server):
    """A MariaDB server with an empty data directory: a unix socket, a loopback port, one database, one account. `args` are further flags."""

    name = "mariadb"
    database = "hayate"
    user = "hayate"
    password = "hayate"

    def __init__(self, args: Sequence[str] = ()) -> None:
        super().__init__()
        self._args = args
        self.socket = self.dir / "mariadb.sock"
        self.data = self.dir / "data"
        self._as_user = ["--user=root"] if ROOT else []

    def command(self) -> Sequence[str]:
        if not self.data.exists():
            self._install()
        self.port = free_port()
        return [
            "/usr/sbin/mariadbd",
            "--no-defaults",
            *self._as_user,
            f"--datadir={self.data}",
            f"--socket={self.socket}",
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            "--max-connections=400",
            f"--tmpdir={self.dir}",  # names in a directory that all share could be those of another server
            f"--pid-file={self.dir}/mariadb.pid",
            f"--init-file={self.dir}/init.sql",
            "--skip-name-resolve",
            "--innodb-buffer-pool-size=32M",
            "--innodb-log-file-size=16M",
            "--innodb-flush-log-at-trx-commit=0",
            "--aria-pagecache-buffer-size=8M",
            "--key-buffer-size=4M",
            *self._args,
        ]

    def _install(self) -> None:
        done = subprocess.run(
            [
                "/usr/bin/mariadb-install-db",
                "--no-defaults",
                *self._as_user,
                f"--datadir={self.data}",
                f"--tmpdir={self.dir}",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                "--skip-name-resolve",
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode != 0:
            raise ServerError(f"mariadb-install-db failed:\n{done.stdout}{done.stderr}")
        accounts = [f"'{self.user}'@'{host}'" for host in ("localhost", "127.0.0.1")]
        statements = [f"CREATE DATABASE IF NOT EXISTS {self.database} CHARACTER SET utf8mb4"]
        for account in accounts:
            statements.append(f"CREATE USER IF NOT EXISTS {account} IDENTIFIED BY '{self.password}'")
            statements.append(f"GRANT ALL ON *.* TO {account}")
        (self.dir / "init.sql").write_text("".join(f"{statement};\n" for statement in statements))

    def ready(self) -> bool:
        return accepts_unix(self.socket) and self.sql("SELECT 1").strip() == "1"

    def sql(self, statement: str, database: str | None = None) -> str:
        """Runs SQL through the command-line client; tab-separated rows without a heading, "" on an error."""
        done = subprocess.run(
            [
                "/usr/bin/mariadb",
                "--no-defaults",
                f"--socket={self.socket}",
                f"--user={self.user}",
                f"--password={self.password}",
                "--batch",
                "--skip-column-names",
                "--execute",
                statement,
                *([database] if database else []),
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.stdout if done.returncode == 0 else ""


class Redis(Server):
    """A Redis server without persistence, on a unix socket and a loopback port."""

    name = "redis"

    def __init__(self) -> None:
        super().__init__()
        self.socket = self.dir / "redis.sock"

    def command(self) -> Sequence[str]:
        self.port = free_port()
        return [
            "/usr/bin/redis-server",
            "--bind",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--unixsocket",
            str(self.socket),
            "--unixsocketperm",
            "777",
            "--save",
            "",
            "--appendonly",
            "no",
            "--dir",
            str(self.dir),
        ]

    def ready(self) -> bool:
        return accepts(self.port) and accepts_unix(self.socket)
