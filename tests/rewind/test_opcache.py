"""OPcache under rewinding workers: new scripts by the thousand, a full cache, opcache_reset(), deployments under load.

HAYATE_OPCACHE_SCRIPTS says how many scripts (default 400).
"""

from __future__ import annotations

import collections
import itertools
import json
import os
import pathlib
import random
import shutil
import threading
from collections.abc import Callable, Iterator

import pytest
import requests
from lib.process import temporary_directory
from lib.servers import Hayate

from .matrix_site import MODIFIED, USER

SCRIPTS = int(os.environ.get("HAYATE_OPCACHE_SCRIPTS", "400"))
WORKERS = 4
CLIENTS = 4
#: The request that calls opcache_reset() costs its worker; the application is booted anew then, and old workers are
#: asked to end.
RESTARTS = {"rewind_opcache", "asked"}
VERIFY = ("--rewind", "on", "--rewind-verify", "10", "--warmup", "off")


def script(n: int) -> str:
    """A script with a class, a function, constants, strings and an array of its own; it returns `answer(n)`."""
    return f"""<?php
namespace Made\\N{n};
interface Shape {{ const SIDES = {n % 7}; }}
trait Counting {{ public static int $count = {n}; public function count(): int {{ return ++self::$count; }} }}
class Thing implements Shape {{ use Counting; public array $list = ['k{n}' => 'value {n}', 'o' => [{n}, {n + 1}]]; }}
function twice_{n}(int $of): int {{ static $calls = 0; $calls++; return $of * 2 * $calls; }}
$thing = new Thing();
$thing->count();
$said = [$thing->list['k{n}'], $thing->list['o'][1], Thing::SIDES, Thing::$count, twice_{n}({n}), __LINE__];
return implode(' ', $said);
"""


def answer(n: int) -> str:
    return f"value {n} {n + 1} {n % 7} {n + 1} {2 * n} 9"


class Load:
    """Clients that ask for what `path` says until told to stop, and count answers that `right` does not accept."""

    def __init__(self, url: str, path: Callable[[random.Random], str], right: Callable[[str, requests.Response], bool]):
        self.url, self.path, self.right = url, path, right
        self.wrong: collections.Counter[str] = collections.Counter()
        self.answered = 0
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(CLIENTS)]

    def _run(self) -> None:
        chance = random.Random()
        session = requests.Session()
        while not self._stop.is_set():
            path = self.path(chance)
            try:
                response = session.get(self.url + path, timeout=60)
                ok, what = self.right(path, response), f"{path}: {response.status_code} {response.text[:200]!r}"
            except requests.RequestException as error:
                ok, what = False, f"{path}: {error!r}"
            self.answered += 1
            if not ok:
                self.wrong[what] += 1

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def wait_for(self, answers: int) -> None:
        """Until so many more answers have come."""
        target = self.answered + answers
        while self.answered < target and any(thread.is_alive() for thread in self._threads):
            self._stop.wait(0.02)


def right_file(path: str, response: requests.Response) -> bool:
    return response.status_code == 200 and response.text == answer(int(path.partition("=")[2]))


@pytest.fixture
def site() -> Iterator[pathlib.Path]:
    """A directory with the worker's release "one" and the scripts."""
    directory = temporary_directory("opcache")
    release(directory, "one")
    (directory / "scripts").mkdir()
    for n in range(SCRIPTS):
        file = directory / "scripts" / f"{n}.php"
        file.write_text(script(n))
        os.utime(file, (MODIFIED, MODIFIED))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def release(directory: pathlib.Path, name: str) -> None:
    """Deploys a release as deployment tools do: a directory of its own, then `current` is moved there at once."""
    target = directory / "releases" / name
    shutil.copytree(pathlib.Path(__file__).parent / "scripts", target)
    for file in target.iterdir():
        file.write_text(file.read_text().replace("RELEASE", name))
        os.utime(file, (MODIFIED, MODIFIED))
    (directory / "next").symlink_to(target)
    (directory / "next").rename(directory / "current")


def serve(site: pathlib.Path, **ini: str) -> Hayate:
    # As text: the path is to be resolved with each reload.
    return Hayate(
        config=f'[[app]]\nroot = "{site}/current"\nworker = "worker.php"\n',
        workers=WORKERS,
        user=USER,
        ini={"opcache.file_update_protection": "0", **{f"opcache.{key}": value for key, value in ini.items()}},
        args=(*VERIFY, "--env", f"SCRIPTS={site / 'scripts'}"),
    )


def status(server: Hayate) -> dict:
    return json.loads(requests.get(f"{server.url}/?status", timeout=60).text)


def restarts(server: Hayate) -> dict[str, int]:
    (app,) = server.status()["apps"]
    assert app["rewind"] is not None and app["fallback"] is None, app
    return app["restarts"]


def test_thousands_of_new_scripts(site: pathlib.Path) -> None:
    """All workers compile and cache at once; each script then comes from the cache, whoever compiled it."""
    with serve(site) as server:
        waiting = collections.deque(random.sample(range(SCRIPTS), SCRIPTS))
        seen = threading.Lock()

        def path(chance: random.Random) -> str:
            with seen:
                new = waiting.popleft() if waiting and chance.random() < 0.5 else None
            return f"/?file={chance.randrange(SCRIPTS) if new is None else new}"

        with Load(server.url, path, right_file) as load:
            load.wait_for(SCRIPTS * 3)
        assert not load.wrong, load.wrong.most_common(5)
        assert not waiting
        said = status(server)
        assert said["opcache_enabled"] and not said["cache_full"] and not said["restart_pending"]
        assert said["opcache_statistics"]["num_cached_scripts"] >= SCRIPTS
        assert said["opcache_statistics"]["hits"] > SCRIPTS
        assert restarts(server) == {}


def test_a_full_cache(site: pathlib.Path) -> None:
    """Where no more scripts fit in, answers stay right."""
    with serve(site, memory_consumption="8", max_accelerated_files="200", interned_strings_buffer="1") as server:
        with Load(server.url, lambda chance: f"/?file={chance.randrange(SCRIPTS)}", right_file) as load:
            load.wait_for(SCRIPTS * 3)
        assert not load.wrong, load.wrong.most_common(5)
        said = status(server)
        full = said["cache_full"] or said["opcache_statistics"]["num_cached_scripts"] >= 200
        assert full or said["restart_pending"] or said["restart_in_progress"] or not said["opcache_enabled"], said
        # Each reset is a new generation; the workers of the one before are asked to leave.
        assert set(restarts(server)) <= {"rewind_opcache", "asked"}


def test_reset_during_load(site: pathlib.Path) -> None:
    """opcache_reset() again and again: no answer suffers."""
    with serve(site) as server:
        with Load(server.url, lambda chance: f"/?file={chance.randrange(SCRIPTS)}", right_file) as load:
            for _ in range(10):
                load.wait_for(100)
                assert requests.get(f"{server.url}/?reset", timeout=60).text in ("reset", "refused")
            load.wait_for(200)
        assert not load.wrong, load.wrong.most_common(5)
        # Each reset is a new generation; the workers of the one before are asked to leave.
        assert set(restarts(server)) <= {"rewind_opcache", "asked"}
        # A reload brings the cache back, whatever the resets have made of it.
        assert server.reload().returncode == 0
        with Load(server.url, lambda chance: f"/?file={chance.randrange(20)}", right_file) as load:
            load.wait_for(200)
        assert not load.wrong, load.wrong.most_common(5)
        said = status(server)
        assert said["opcache_enabled"] and said["opcache_statistics"]["num_cached_scripts"] >= 20


def test_deployment_during_load(site: pathlib.Path) -> None:
    """`current` is moved to a release, then `hayate reload`: each answer is all of one release, then of the new one."""
    names = ["one", "two", "three", "four"]

    def right(path: str, response: requests.Response) -> bool:
        said = response.text.split()
        return response.status_code == 200 and len(said) == 4 and said[1] in names and len(set(said[1:])) == 1

    with serve(site) as server:
        with Load(server.url, lambda chance: "/?release", right) as load:
            for old, name in itertools.pairwise(names):
                load.wait_for(200)
                release(site, name)
                load.wait_for(50)
                assert requests.get(f"{server.url}/?release", timeout=60).text.split()[1] == old
                assert server.reload().returncode == 0
                assert requests.get(f"{server.url}/?release", timeout=60).text.split()[1] == name
            load.wait_for(200)
        assert not load.wrong, load.wrong.most_common(5)
        (app,) = server.status()["apps"]
        assert app["rewind"]["rewinds"] > 0 and app["fallback"] is None
