"""Pebble, Let's Encrypt's small certificate authority for tests, with a DNS server that says 127.0.0.1 to every question."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

import requests

from .process import accepts, free_port, wait_until
from .servers import REPOSITORY
from .tls import issued, self_signed


def find(name: str) -> str | None:
    """Where a program of pebble's is: where scripts/setup has it built, else in PATH (Debian 12's is too old)."""
    return shutil.which(name, path=os.pathsep.join([str(REPOSITORY / "target/pebble"), os.environ["PATH"]]))


class Pebble:
    """`directory` is its ACME directory, `root` the file by which it is known itself, `issuer` the authority of what it issues."""

    def __init__(self, http: int, tls: int, *, eab: dict[str, str] | None = None, env: dict[str, str] | None = None) -> None:
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="pebble-"))
        self.dir.chmod(0o755)
        self.port, self.management, self.dns, self.dns_management = (free_port() for _ in range(4))
        self.root, _ = self_signed(self.dir, "root", ["authority.example"])
        chain, key = issued(self.dir, "pebble", ["localhost"], "root", "serverAuth")
        self.config = {
            "listenAddress": f"127.0.0.1:{self.port}",
            "managementListenAddress": f"127.0.0.1:{self.management}",
            "certificate": str(chain),
            "privateKey": str(key),
            "httpPort": http,
            "tlsPort": tls,
            "ocspResponderURL": "",
            "externalAccountBindingRequired": eab is not None,
            "externalAccountMACKeys": eab or {},
            "retryAfter": {"authz": 1, "order": 1},
            "profiles": {
                "default": {"description": "the usual", "validityPeriod": 7776000},
                "shortlived": {"description": "six days", "validityPeriod": 518400},
            },
        }
        self.env = {"PEBBLE_VA_NOSLEEP": "1", "PEBBLE_WFE_NONCEREJECT": "20", "PEBBLE_AUTHZREUSE": "0", **(env or {})}
        self.processes: list[subprocess.Popen] = []
        self.directory = f"https://localhost:{self.port}/dir"

    def __enter__(self) -> Pebble:
        (self.dir / "pebble.json").write_text(json.dumps({"pebble": self.config}))
        dns = ["pebble-challtestsrv", "-dnsserver", f"127.0.0.1:{self.dns}", "-management", f"127.0.0.1:{self.dns_management}",
               "-defaultIPv4", "127.0.0.1", "-defaultIPv6", "", "-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", ""]  # fmt: skip
        self._run(dns, "dns")
        self.start()
        return self

    def start(self) -> None:
        self._run(["pebble", "-config", str(self.dir / "pebble.json"), "-dnsserver", f"127.0.0.1:{self.dns}"], "pebble")
        assert wait_until(lambda: accepts(self.port) and accepts(self.management)), self.log()

    def _run(self, command: list[str], name: str) -> None:
        program = find(command[0])
        assert program, f"{command[0]} is not there"
        output = open(self.dir / f"{name}.log", "ab")
        done = subprocess.Popen([program, *command[1:]], stdout=output, stderr=output, env={**os.environ, **self.env})
        self.processes.append(done)

    def stop(self) -> None:
        """Ends pebble; the DNS server goes on."""
        process = self.processes.pop()
        process.terminate()
        process.wait(30)

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.terminate()
            process.wait(30)
        shutil.rmtree(self.dir, ignore_errors=True)

    def log(self) -> str:
        return (self.dir / "pebble.log").read_text(errors="replace")

    def manage(self, path: str, **data) -> requests.Response:
        url = f"https://localhost:{self.management}{path}"
        if data:
            return requests.post(url, json=data, verify=str(self.root), timeout=60)
        return requests.get(url, verify=str(self.root), timeout=60)

    @property
    def issuer(self) -> pathlib.Path:
        path = self.dir / "issuer.pem"
        path.write_text(self.manage("/roots/0").text)
        return path

    def resolve(self, host: str, address: str) -> None:
        requests.post(f"http://127.0.0.1:{self.dns_management}/add-a", json={"host": host + ".", "addresses": [address]}, timeout=60)


def wait_for(condition, seconds: float = 150, why=lambda: "") -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, why()
        time.sleep(0.2)
