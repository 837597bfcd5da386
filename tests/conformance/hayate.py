"""Hayate as a way to run a test, in each of its modes.

In the modes whose processes live on, each test runs several times in one process, so that the suite can tell whether a
later run goes as the first did.
"""

from __future__ import annotations

import http.client
import json
import pathlib
import shutil
import socket

from lib.servers import Hayate, Server

from .backends import TIMEOUT, WORKER, WORKER_NAME, Http, Setting, Settings, within_open_basedir, without_addition
from .phpt import Request, Response

#: What a process is given to serve that is to serve nothing.
NOTHING = "conformance_nothing.php"


def _environment(env: Settings) -> list[str]:
    """Hayate's arguments that set PHP's environment, which inherits nothing."""
    return [argument for key, value in env.items() for argument in ("--env", f"{key}={value}")]


class HayateClassic(Http):
    """Hayate in classic mode."""

    def make(self, ini: Settings, env: Settings) -> Server:
        return Hayate(self.tree, ini=ini, workers=1, args=_environment(env))


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket: Hayate's control socket."""

    def __init__(self, path: pathlib.Path) -> None:
        super().__init__("localhost", timeout=TIMEOUT)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class HayateWorker(Http):
    """Hayate in worker mode, state kept: a worker script includes the test, twice in a process that is new for each."""

    runs = 2
    in_function = True
    #: Whether worker.php is to put back what PHP code can.
    restore = True
    arguments = ("--rewind", "off", "--max-requests", str(runs))

    def __init__(self, tree: pathlib.Path) -> None:
        super().__init__(tree)
        self._restarts: dict[str, int] = {}
        self._last = ""

    def make(self, ini: Settings, env: Settings) -> Server:
        worker = shutil.copyfile(WORKER, self.tree / WORKER_NAME)
        (self.tree / NOTHING).touch()
        self._restarts = {}
        if self.restore:
            env = {**env, "CONFORMANCE_RESTORE": "1"}
        ini = within_open_basedir(ini, worker)
        return Hayate(self.tree, ini=ini, workers=1, worker=worker, args=[*_environment(env), *self.arguments])

    def exchange(self, script: str, request: Request) -> Response:
        response = super().exchange(script, request)
        response.body = without_addition(response.body, self.tree / WORKER_NAME)
        return response

    def prepare(self, script: str, setting: Setting) -> None:
        self.serve(script, setting)
        self._note_restarts()
        self._last = script
        self.use_up()

    def use_up(self) -> None:
        """Lets a process that an earlier test has not used up (a run ended it) serve what it has left."""
        # Three, since one that is about to end may still be counted.
        for _ in range(3):
            workers = self._status().get("workers", ())
            if all(worker["requests"] % self.runs == 0 for worker in workers):
                return
            self.exchange(NOTHING, Request("GET", "", (), b""))

    def close(self, kill: bool = False) -> None:
        self._note_restarts()
        super().close(kill)

    def _note_restarts(self) -> None:
        """What was replaced since the last look is the work of the test that ran since."""
        restarts = self._status().get("restarts", {})
        for cause, count in restarts.items():
            if count > self._restarts.get(cause, 0) and cause != "max_requests":
                self.replaced[cause].append(self._last)
        self._restarts = restarts or self._restarts

    def _status(self) -> dict:
        """What `hayate status` says of the application; empty when the server does not answer."""
        if not isinstance(self.server, Hayate):
            return {}
        connection = _UnixConnection(self.server.control)
        try:
            connection.request("GET", "/status")
            return json.load(connection.getresponse())["apps"][0]
        except (OSError, http.client.HTTPException, ValueError):
            return {}
        finally:
            connection.close()


class HayateRewind(HayateWorker):
    """Hayate in worker mode with rewind: each test three times, and all tests of one setting in one process."""

    runs = 3
    restore = False
    arguments = ("--rewind", "on", "--warmup", "off")

    def use_up(self) -> None:
        """Not at all: what a test leaves behind is what rewinding has to take back."""


#: The backends by Hayate's mode, as the command line names it.
MODES: dict[str, type[Http]] = {"classic": HayateClassic, "worker": HayateWorker, "rewind": HayateRewind}
