"""The site that parity is measured on, and the servers that serve it: the reference, and Hayate in both modes."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil

from lib import php_extensions
from lib.process import temporary_directory
from lib.servers import GENERIC_WORKER, REWIND_WORKER, ROOT, Hayate, NginxFpm

from .dsl import HOST, Case
from .play import Answer, play
from .profiles import Profile

HERE = pathlib.Path(__file__).parent
#: When every file of the site was last modified: OPcache takes no file that is younger than two seconds.
MODIFIED = 1_700_000_000


class Site:
    """The cases' scripts in a directory that every server's user may read, and one for what scripts write."""

    def __init__(self) -> None:
        self.dir = temporary_directory("parity")
        self.docroot = self.dir / "site"
        self.tmp = self.dir / "tmp"
        self.tmp.mkdir()
        self.tmp.chmod(0o777)
        shutil.copytree(HERE / "cases", self.docroot, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
        self.worker = shutil.copy(GENERIC_WORKER, self.dir)
        self.rewind_worker = shutil.copy(REWIND_WORKER, self.dir)
        (self.docroot / "routing" / "linked.php").symlink_to("plain.php")
        (self.docroot / "routing" / "scripts").symlink_to("directory", target_is_directory=True)
        for path in self.docroot.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
            os.utime(path, (MODIFIED, MODIFIED))

    def root(self, profile: Profile) -> pathlib.Path:
        return self.docroot / profile.root if profile.root else self.docroot

    def ini(self, profile: Profile) -> dict[str, str]:
        fixed = {
            "date.timezone": "UTC",
            "sys_temp_dir": str(self.tmp),
            "upload_tmp_dir": str(self.tmp),
            "session.save_path": str(self.tmp),
            "sendmail_path": "/bin/false",
            "apc.shm_size": "8M",
        }
        workers = f"{self.worker}:{self.rewind_worker}"
        places = {"docroot": self.docroot, "tmp": self.tmp, "worker": workers}
        return fixed | php_extensions.ini("gd") | {key: value.format(**places) for key, value in profile.ini.items()}


class Servers:
    """The servers of one profile, started when first asked for, and the reference's answers."""

    def __init__(self, site: Site, profile: Profile) -> None:
        self._site = site
        self._profile = profile
        self._running: dict[str, NginxFpm | Hayate] = {}
        self._reference: dict[str, list[Answer]] = {}
        self.prefix_of_theme = not profile.root

    def server(self, kind: str) -> NginxFpm | Hayate:
        if kind not in self._running:
            server = self._make(kind)
            try:
                self._running[kind] = server.start()
            except BaseException:
                server.remove()
                raise
        return self._running[kind]

    def _make(self, kind: str) -> NginxFpm | Hayate:
        root, ini = self._site.root(self._profile), self._site.ini(self._profile)
        if kind == "reference":
            front = "/index.php" if self._profile.front else None
            return NginxFpm(root, ini=ini, server_name=HOST, front_controller=front)
        scripts = {"classic": None, "worker": self._site.worker, "rewind": self._site.rewind_worker}
        args = {
            "classic": (),
            "worker": ("--rewind", "off"),
            # Nothing is warmed up, so that each request is the first; after each rewind all memory is compared.
            "rewind": ("--rewind", "on", "--warmup", "off", "--rewind-verify", "1"),
        }
        user = "www-data" if ROOT else None
        front = ("--front-controller", "index.php") if self._profile.front else ()
        # The reference does not compress; tests/protocol/test_compression.py sets the two side by side where both do.
        plain = "[compression]\nenabled = false\n"
        return Hayate(root, config=plain, ini=ini, worker=scripts[kind], workers=2, user=user, args=(*args[kind], *front))

    def play(self, case: Case, kind: str) -> list[Answer]:
        return play(case, self.server(kind), f"/{case.theme}" if self.prefix_of_theme else "")

    def reference(self, case: Case) -> list[Answer]:
        if case.id not in self._reference:
            self._reference[case.id] = self.play(case, "reference")
        return self._reference[case.id]

    def stop(self) -> None:
        """Stops every server, even when one of them fails to stop as it should; raises the last failure."""
        with contextlib.ExitStack() as stack:
            for server in self._running.values():
                stack.callback(server.remove)
                stack.callback(server.kill)
                stack.callback(server.stop)
            self._running = {}
