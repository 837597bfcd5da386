"""Pages that rare requests write are no burden for the others.

Hot pages are put back after each request, whether it wrote to them or not: so only those may be hot that requests go on
writing. HAYATE_HOT_REQUESTS says how many requests are made (default 1,500).
"""

from __future__ import annotations

import os
import pathlib
import random
import time

from lib.servers import Hayate

from .keep_alive import KeepAlive

HERE = pathlib.Path(__file__).parent / "hot_pages"
REQUESTS = int(os.environ.get("HAYATE_HOT_REQUESTS", "1500"))
SUM = str(100_000 * 99_999 // 2).encode()


def cpu_ns(pid: int) -> int:
    """What the process has used of processors. Linux: /proc/PID/schedstat, first field."""
    return int(pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()[0])


def test_one_request_in_twenty_does_not_make_the_others_dear() -> None:
    """It writes some five thousand pages. Before, all of them were put back after each request, for thousands of requests."""
    chance = random.Random(1)
    with Hayate(HERE, worker=HERE / "worker.php", workers=1, args=("--rewind-verify", "200")) as server:
        (app,) = server.status()["apps"]
        pid = app["workers"][0]["pid"]
        light: list[int] = []
        heavy: list[int] = []
        with KeepAlive(server.port) as connection:
            for n in range(REQUESTS):
                rare = chance.random() < 0.05
                before = cpu_ns(pid)
                assert connection.get("/?all" if rare else "/") == (200, SUM if rare else b"0")
                time.sleep(0.002)  # The rewind comes after the answer.
                if n > REQUESTS / 2:
                    (heavy if rare else light).append(cpu_ns(pid) - before)
            (app,) = server.status()["apps"]
        light.sort()
        heavy.sort()
        print(f"{app['rewind']['hot_pages']} hot pages; µs of processor per request, median: light "
              f"{light[len(light) // 2] / 1000:.0f}, heavy {heavy[len(heavy) // 2] / 1000:.0f}")  # fmt: skip
        assert app["rewind"]["tracking"] != "uffd" or app["rewind"]["hot_pages"] < 1000
        assert app["restarts"] == {}
