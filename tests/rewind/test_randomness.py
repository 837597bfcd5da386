"""Random numbers and identifiers never repeat, between requests and between workers.

HAYATE_RANDOM_REQUESTS says how many requests are made (default 20,000).
"""

from __future__ import annotations

import collections
import math
import os
import pathlib
import shutil
import threading

import pytest
from lib.process import temporary_directory
from lib.servers import Hayate

from .keep_alive import KeepAlive
from .matrix_site import USER

REQUESTS = int(os.environ.get("HAYATE_RANDOM_REQUESTS", "20000"))
WORKERS = 4
CLIENTS = 6
#: mt_rand() is seeded with 32 random bits, in every PHP: so it repeats about n²/2³³ times in n requests. What uses it
#: repeats with it.
OF_32_BITS = {"mt_rand", "shuffle"}
#: One request in so many draws from the dear sources as well.
DEAR = 20


class Drawn:
    """What all requests have drawn, by source: how often each value came. Values are kept as hashes of 64 bits."""

    def __init__(self) -> None:
        self.values: dict[str, set[int]] = collections.defaultdict(set)
        self.repeats: collections.Counter[str] = collections.Counter()
        self.lock = threading.Lock()

    def add(self, text: bytes) -> None:
        with self.lock:
            for line in text.splitlines():
                source, _, value = line.partition(b" ")
                name, key = source.decode(), hash(value)
                if key in self.values[name]:
                    self.repeats[name] += 1
                self.values[name].add(key)


def draw(server: Hayate, requests: int) -> Drawn:
    drawn = Drawn()
    share = -(-requests // CLIENTS)
    failures: list[BaseException] = []

    def client() -> None:
        try:
            with KeepAlive(server.port) as connection:
                for n in range(share):
                    status, text = connection.get("/?dear" if n % DEAR == 0 else "/")
                    assert status == 200, text
                    drawn.add(text)
        except BaseException as failure:  # noqa: BLE001 (told below, whatever it is)
            failures.append(failure)

    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    return drawn


def serve(rewind: str) -> Hayate:
    directory = temporary_directory("randomness")
    shutil.copy(pathlib.Path(__file__).parent / "randomness/worker.php", directory)
    arguments = ("--rewind", rewind, "--warmup", "/", "--warmup", "/")
    return Hayate(directory, worker=directory / "worker.php", workers=WORKERS, user=USER, args=arguments)


@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_randomness_never_repeats(rewind: str) -> None:
    requests = REQUESTS if rewind == "on" else min(REQUESTS, 600)
    with serve(rewind) as server:
        drawn = draw(server, requests)
        (app,) = server.status()["apps"]
    shutil.rmtree(server.root, ignore_errors=True)
    assert not app["restarts"] and app["rewind"]["rewinds"] >= requests * 0.99
    made = -(-requests // CLIENTS) * CLIENTS
    assert len(drawn.values) == 18
    by_chance = made * made / 2 / 2**32
    for source in drawn.values.keys() - {"pid"}:
        allowed = by_chance + 6 * math.sqrt(by_chance) + 2 if source in OF_32_BITS else 0
        assert drawn.repeats[source] <= allowed, f"{source} repeated {drawn.repeats[source]} times in {made} requests"
    if rewind == "on":
        assert len(drawn.values["pid"]) > 1, "one worker did it all"
