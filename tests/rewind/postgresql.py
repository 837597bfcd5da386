"""A PostgreSQL server with an empty cluster, on a unix socket and a loopback port in a temporary directory."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence

from lib.process import Server, ServerError, accepts_unix, free_port
from lib.servers import ROOT

#: It refuses to run as root; Debian's package makes this user.
USER = "postgres" if ROOT else None


def _binaries() -> pathlib.Path:
    """Where the newest installed version has its programs."""
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    if not found:
        raise ServerError("PostgreSQL is not installed: apt-get install postgresql")
    return found[-1]


class PostgreSQL(Server):
    """Anybody on this machine may connect as `postgres`, without a password, to the database `postgres`.

    `tls` has its certificate and key: then clients that leave it to libpq have TLS, as with Debian's packages.
    """

    name = "postgresql"
    start_timeout = 30.0

    def __init__(self, tls: tuple[pathlib.Path, pathlib.Path] | None = None) -> None:
        super().__init__()
        self.data = self.dir / "data"
        self._tls: Mapping[str, object] = {}
        if tls is not None:
            certificate, key = (pathlib.Path(shutil.copy(file, self.dir)) for file in tls)
            key.chmod(0o600)
            self._tls = {"ssl": "on", "ssl_cert_file": certificate, "ssl_key_file": key}
            if USER is not None:
                shutil.chown(key, USER, USER)
        if USER is not None:
            shutil.chown(self.dir, USER, USER)

    def _as_user(self) -> dict[str, object]:
        return {} if USER is None else {"user": USER, "group": USER, "extra_groups": []}

    def command(self) -> Sequence[str]:
        if not self.data.exists():
            options = ["--pgdata", self.data, "--auth", "trust", "--username", "postgres", "--no-sync"]
            done = subprocess.run(
                [_binaries() / "initdb", *options],
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
                cwd=self.dir,
                **self._as_user(),
            )
            if done.returncode != 0:
                raise ServerError(f"initdb failed:\n{done.stdout}{done.stderr}")
        self.port = free_port()
        ids = [f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
        change_user = [] if USER is None else ["/usr/bin/setpriv", *ids]
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": self.dir,
            "fsync": "off",
            "shared_buffers": "16MB",
            "max_connections": "400",
            **self._tls,
        }
        options = [option for key, value in settings.items() for option in ("-c", f"{key}={value}")]
        return [*change_user, str(_binaries() / "postgres"), "-D", str(self.data), *options]

    def ready(self) -> bool:
        return accepts_unix(self.dir / f".s.PGSQL.{self.port}") and self.sql("SELECT 1").strip() == "1"

    def sql(self, statement: str, database: str = "postgres") -> str:
        """Runs SQL through the command-line client; rows without a heading, "" on an error."""
        target = ["--host", self.dir, "--port", str(self.port), "--username", "postgres", "--dbname", database]
        done = subprocess.run(
            [_binaries() / "psql", "--no-psqlrc", "--tuples-only", "--no-align", *target, "--command", statement],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd="/",
            env={**os.environ, "PGCONNECT_TIMEOUT": "10"},
        )
        return done.stdout if done.returncode == 0 else ""

    def stop(self, sig: int = signal.SIGINT) -> int:
        """A "fast" shutdown: the usual signal would wait for clients to leave."""
        return super().stop(sig)
