"""What happens to the server of the soak: processes killed and stopped, reloads, a full disk, little memory.

One thing at a time, each written down.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import pathlib
import random
import signal
import subprocess
import threading
import time

from lib.cgroups import MemoryGroup
from lib.process import descendants, wait_until
from lib.servers import Hayate

#: Bytes that are left when memory is little; each of eat.php wants more (`site.py`).
ROOM = 24 << 20


class Chaos(threading.Thread):
    """Disturbs `server` every now and then until told to stop.

    `full`: a small file system that may be filled. `memory`: the server's, which may be made little. `fronts`: fronts are killed as well, after
    which the log lacks what the front had not written yet, and the metrics begin anew.
    """

    def __init__(
        self, server: Hayate, chance: random.Random, full: pathlib.Path | None, memory: MemoryGroup | None, fronts: bool
    ) -> None:
        super().__init__(daemon=True)
        self.server, self.chance, self.full, self.memory, self.fronts = server, chance, full, memory, fronts
        #: Workers that the kernel has ended for want of memory, and those of zygotes that it has.
        self.starved = 0
        self.done: dict[str, int] = {}
        #: When a front was killed, and when it was seen to be gone: requests that were under way between are lost with it.
        self.front_kills: list[tuple[float, float]] = []
        #: What should not have been.
        self.faults: list[str] = []
        #: Held while something is done: a front that boots holds less than one that serves.
        self.deed = threading.Lock()
        self._over = threading.Event()

    def stop(self) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        deeds = [self.kill_worker] * 6 + [self.stop_worker] * 2 + [self.kill_zygote, self.stop_zygote, self.reload, self.reload]
        if self.full is not None:
            deeds.append(self.fill_disk)
        if self.memory is not None:
            deeds.append(self.starve)
        if self.fronts:
            deeds.append(self.kill_front)
        # One front at least, however short the run.
        first = [self.kill_front] if self.fronts else []
        while not self._over.wait(self.chance.uniform(0.2, 1.0)):
            deed = first.pop() if first else self.chance.choice(deeds)
            try:
                with self.deed:
                    deed()
            except (OSError, subprocess.TimeoutExpired, RuntimeError) as error:
                self.faults.append(f"{deed.__name__}: {error}")
            self.done[deed.__name__] = self.done.get(deed.__name__, 0) + 1

    def _apps(self) -> list[dict]:
        return self.server.status()["apps"]

    def _worker(self) -> int | None:
        pids = [worker["pid"] for app in self._apps() for worker in app["workers"]]
        return self.chance.choice(pids) if pids else None

    def _signal(self, pid: int | None, sig: int) -> None:
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sig)

    def kill_worker(self) -> None:
        self._signal(self._worker(), signal.SIGKILL)

    def stop_worker(self) -> None:
        pid = self._worker()
        self._signal(pid, signal.SIGSTOP)
        time.sleep(self.chance.uniform(0.1, 1.5))
        self._signal(pid, signal.SIGCONT)

    def _zygote(self) -> int | None:
        return self.chance.choice(self._apps()).get("zygote")

    def kill_zygote(self) -> None:
        self._signal(self._zygote(), signal.SIGKILL)

    def stop_zygote(self) -> None:
        pid = self._zygote()
        self._signal(pid, signal.SIGSTOP)
        time.sleep(self.chance.uniform(0.1, 1.0))
        self._signal(pid, signal.SIGCONT)

    def kill_front(self) -> None:
        for pid in descendants(self.server.pid):
            with contextlib.suppress(OSError):
                if pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1:2] == [b"front"]:
                    killed = time.time()
                    self._signal(pid, signal.SIGKILL)
                    wait_until(lambda: not pathlib.Path(f"/proc/{pid}").exists(), interval=0.001)
                    self.front_kills.append((killed, time.time()))
                    # The next one has to boot all applications before the next disturbance.
                    wait_until(lambda: self.server.run("status").returncode == 0, 60, 0.1)
                    return
        self.faults.append("kill_front: there is no front")

    def reload(self) -> None:
        outcome = self.server.reload()
        if outcome.returncode != 0:
            self.faults.append(f"reload: {outcome.stderr or outcome.stdout}")

    def fill_disk(self) -> None:
        assert self.full is not None
        ballast = self.full / "ballast"
        try:
            with open(ballast, "wb", buffering=0) as file, contextlib.suppress(OSError):
                while file.write(b"\0" * 65536):
                    pass
            time.sleep(0.5)
        finally:
            ballast.unlink(missing_ok=True)

    def starve(self) -> None:
        """For a moment two requests want more memory than there is: the kernel ends workers, and not the front."""
        assert self.memory is not None
        front, zygotes, before = self.server.front, {app.get("zygote") for app in self._apps()}, self.memory.kills()
        hungry = [threading.Thread(target=self._eat) for _ in range(2)]
        self.memory.leave(ROOM)
        try:
            for one in hungry:
                one.start()
            for one in hungry:
                one.join()
        finally:
            self.memory.unlimited()
        kills = self.memory.kills() - before
        # A zygote takes its workers along, four at most.
        self.starved += kills + 4 * len(zygotes - {app.get("zygote") for app in self._apps()})
        if self.server.front != front:
            self.faults.append("starve: the front was killed")

    def _eat(self) -> None:
        """Whatever comes of it: it has no number, so the books do not ask."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
            connection.request("GET", f"/{self.chance.choice(['classic', 'rewound'])}/eat.php")
            connection.getresponse().read()
            connection.close()
