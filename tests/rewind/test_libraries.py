"""What four visitors hand in to real libraries arrives as under php-fpm, which makes them for each request.

Debian's packages of Monolog (every handler that keeps something back), Symfony's Cache, Lock, Messenger, Mailer and
HttpClient, Doctrine DBAL and ORM, Guzzle, APCu and Redis: made by the boot or by the first request, with warm-up requests
that use all of them and without, one boot for all workers or one for each. Counted are lines of files, rows, lists, cached
items, HTTP requests, mails and datagrams, by visitor.
"""

from __future__ import annotations

import base64
import json
import pathlib
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import requests

from lib.process import IN_VAIN, temporary_directory, wait_until
from lib.servers import Hayate, NginxFpm, Server

from . import modes
from .matrix_site import USER
from .world import VISITORS, World, make_tables, tally

HERE = pathlib.Path(__file__).parent / "libraries"
INI = {"display_errors": "1", "html_errors": "0", "apc.shm_size": "8M", "error_reporting": "8191"}
WARM = ["--warmup=/?visitor=Warm", "--warmup=/?visitor=Warm", "--warmup=/?visitor=Warm"]
COLD = ["--warmup=off"]
#: Made by whom, and how the requests are served.
MODES = {
    "boot-cold": ("", COLD),
    "boot-warm": ("", WARM),
    "lazy-cold": ("1", COLD),
    "lazy-warm": ("1", WARM),
    "lazy-fork-warm": ("1", [*WARM, "--rewind=fork"]),
    "lazy-private-warm": ("1", [*WARM, "--env=PAIR=1"]),
    "boot-fork-cold": ("", [*COLD, "--rewind=fork"]),
    "boot-private-warm": ("", [*WARM, "--env=PAIR=1"]),
    "lazy-fork-private-warm": ("1", [*WARM, "--rewind=fork", "--env=PAIR=1"]),
}
#: The same with connections that are kept, opened by whom.
KEPT = {
    "boot-opened-by-boot": ("", [*COLD, "--env=OPEN=boot"]),
    "boot-opened-by-start": ("", [*COLD, "--env=OPEN=start"]),
    "lazy-opened-by-start": ("1", [*COLD, "--env=OPEN=start"]),
    "lazy-warm-not-opened": ("1", WARM),
}
MODES |= {mode: (lazy, [*args, "--connections=warm"]) for mode, (lazy, args) in KEPT.items()}
#: Redis, and two connections each to MariaDB and PostgreSQL.
CONNECTIONS = 5
#: Of what is kept in memory and in files, SQLite alone can be opened beforehand.
CASES = [("connections", mode) for mode in MODES] + [("memory", mode) for mode in MODES if mode not in ("lazy-opened-by-start", "lazy-warm-not-opened")]
#: Chrome's extension asks for its headers.
HEADERS = {"User-Agent": "Mozilla/5.0 Chrome/120.0 Safari/537.36"}


@dataclass
class Outcome:
    answers: list[object]
    arrived: dict[str, Counter[str]]
    cached: dict[str, list[str]]


def play(world: World, server: Server, out: pathlib.Path, expected: Outcome | None = None) -> Outcome:
    """Four visitors, one after the other, as one worker serves them."""
    world.forget(out)
    answers = []
    spoken: dict[str, Counter[str]] = {"monolog_browser": Counter(), "monolog_chrome": Counter()}
    for visitor in VISITORS:
        answer = requests.get(server.url, params={"visitor": visitor}, headers=HEADERS, timeout=60)
        assert answer.status_code == 200, (answer.text, server.log()[-3000:])
        body, _, script = answer.text.partition("\n")
        answers.append(json.loads(body.replace(visitor, "VISITOR")))
        spoken["monolog_browser"] += tally(script)
        spoken["monolog_chrome"] += tally(base64.b64decode(answer.headers.get("X-ChromeLogger-Data", "")).decode())
        # A client may have its answer before the request has ended: its locks are given up just after.
        time.sleep(0.1)
    deadline = time.monotonic() + IN_VAIN
    while True:
        text = requests.get(server.url, params={"arrived": ",".join(VISITORS)}, timeout=60).text
        try:
            cached = json.loads(text)
        except json.JSONDecodeError:
            raise AssertionError(text) from None
        arrived = world.arrived(out) | {name: count for name, count in spoken.items() if count}
        outcome = Outcome(answers, arrived, cached)
        if expected is None or (arrived, cached) == (expected.arrived, expected.cached) or time.monotonic() > deadline:
            return outcome
        time.sleep(0.05)


def directory_of(world: World) -> pathlib.Path:
    directory = temporary_directory("libraries")
    directory.chmod(0o755)
    for file in HERE.glob("*.php"):
        shutil.copy(file, directory)
        (directory / file.name).chmod(0o644)
    out = directory / "out"
    out.mkdir()
    out.chmod(0o777)
    make_tables(out / "orm.db")
    return directory


@pytest.fixture(scope="module")
def references(world: World) -> Iterator[dict[str, Outcome]]:
    """php-fpm's word on both sets of libraries."""
    found = {}
    for hands_in in ("memory", "connections"):
        directory = directory_of(world)
        env = {f"env[{name}]": f'"{value}"' for name, value in world.env(directory / "out", hands_in, "").items() if value}
        with NginxFpm(directory, index="worker.php", ini={**INI, **modes.ONCE}, fpm=env, workers=1) as server:
            found[hands_in] = play(world, server, directory / "out")
        shutil.rmtree(directory, ignore_errors=True)
    yield found


@pytest.mark.parametrize("hands_in", ["memory", "connections"])
def test_php_fpm_gets_all_of_it(hands_in: str, references: dict[str, Outcome]) -> None:
    reference = references[hands_in]
    expected = Counter(VISITORS)
    for name, arrived in reference.arrived.items():
        assert {visitor: arrived[visitor] > 0 for visitor in arrived} == dict.fromkeys(expected, True), (name, arrived)
    for name, visitors in reference.cached.items():
        assert visitors == VISITORS, name
    assert len(reference.arrived) + len(reference.cached) > 20
    assert all(answer == reference.answers[0] for answer in reference.answers)


@pytest.mark.parametrize(("hands_in", "mode"), CASES)
def test_libraries(hands_in: str, mode: str, world: World, references: dict[str, Outcome]) -> None:
    lazy, args = MODES[mode]
    directory = directory_of(world)
    try:
        env = world.env(directory / "out", hands_in, lazy)
        flags = [flag for name, value in env.items() if value for flag in ("--env", f"{name}={value}")]
        if "--rewind=fork" not in args:
            flags += ["--rewind", "on", "--rewind-verify", "1"]
        with Hayate(directory, worker=directory / "worker.php", workers=1, ini=INI, args=[*flags, *args], user=USER) as server:
            outcome = play(world, server, directory / "out", references[hands_in])
            (app,) = server.status()["apps"]
            # A worker that boots by itself and finds that its warm-up left something has the application booted again.
            lost = {why for why in app["restarts"] if "private" not in mode or why.startswith("rewind")}
            assert not lost and app["fallback"] is None, (app, server.log())
            opened = CONNECTIONS if "opened-by" in mode and hands_in == "connections" else 0
            assert app["boot"] == ("private" if "private" in mode or "by-boot" in mode else "shared")
            assert app["rewind"]["warm"] == opened, server.log()
        assert outcome.arrived == references[hands_in].arrived
        assert outcome.cached == references[hands_in].cached
        if "cold" in mode or app["cold_boot"]:
            assert outcome.answers == references[hands_in].answers
        assert all(answer == outcome.answers[0] for answer in outcome.answers), "nobody meets the visitor before"
    finally:
        shutil.rmtree(directory, ignore_errors=True)
