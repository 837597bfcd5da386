"""All kinds of misbehaviour at random, on four workers that share one opcache.

First the kinds that a worker survives: none may be replaced, and what it holds of the kernel may not grow. Then all of
them. Every answer is php-fpm's, every request finds what the first one found, every witness writes once.

HAYATE_MATRIX_REQUESTS says how many requests (default: 1,200, for CI), HAYATE_MATRIX_SEED repeats a run.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import os
import pathlib
import random
import sys
import threading
import time
from collections.abc import Iterable

import pytest

from lib.process import wait_until

from . import modes
from .matrix_site import ENGINES, KINDS, RETIRING, SLOW, WITH_BODY, MatrixSite, Played, Player, Reference

REQUESTS = int(os.environ.get("HAYATE_MATRIX_REQUESTS", "1200"))
SEED = int(os.environ.get("HAYATE_MATRIX_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
WORKERS = 4
CLIENTS = 6
#: How often one of these comes, relative to others.
SELDOM = 0.03
#: Of the requests in the part with all kinds, those after which a worker is replaced. With one in five Hayate would
#: give up rewinding.
HOSTILE_SHARE = 0.02
#: So many times it is looked at what workers hold. What leaks grows each time; a kind that a worker meets for the first
#: time makes it grow once.
PARTS = 4
#: What the private memory of workers may grow by, the largest and each on average, from one time to the next: pages that
#: were not touched before. In a long run all have been.
GROWTH_KIB = 2048 if REQUESTS > 10_000 else 16384
MAPPINGS_GROWTH = 8


@dataclasses.dataclass(frozen=True)
class Held:
    """What a worker holds of the kernel."""

    descriptors: int
    mappings: int
    anonymous_kib: int


def held(pid: str) -> Held:
    process = pathlib.Path("/proc") / pid
    anonymous = next(line for line in (process / "status").read_text().splitlines() if line.startswith("RssAnon:"))
    maps = (process / "maps").read_text().count("\n")
    return Held(len(os.listdir(process / "fd")), maps, int(anonymous.split()[1]))


def least_growth(course: Iterable[int]) -> int:
    return min(after - before for before, after in itertools.pairwise(course))


def draw(chance: random.Random, kinds: list[str], count: int) -> list[str]:
    weights = [SELDOM if kind in SLOW else 1 for kind in kinds]
    return chance.choices(kinds, weights, k=count)


def play_all(player: Player, kinds: list[str]) -> list[tuple[str, Played | Exception]]:
    """Plays them from several clients at once."""
    waiting = collections.deque(kinds)
    done: list[tuple[str, Played | Exception]] = []

    def client() -> None:
        while True:
            try:
                kind = waiting.popleft()
            except IndexError:
                return
            try:
                done.append((kind, player.play(kind, timeout=90)))
            except (OSError, ValueError) as error:
                done.append((kind, error))

    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return done


class Judge:
    """Collects what is wrong."""

    def __init__(self, player: Player, reference: Reference, first: Played) -> None:
        self.player, self.reference, self.first = player, reference, first
        self.faults: collections.Counter[str] = collections.Counter()
        self.ids: dict[str, str] = {}

    def look_at(self, played: list[tuple[str, Played | Exception]]) -> None:
        for kind, one in played:
            if isinstance(one, Exception):
                self.faults[f"{kind}: {one!r}"] += 1
                continue
            self.ids[one.id] = kind
            answer = self.reference.of(kind)[0]
            if one.answer != answer:
                self.faults[f"{kind}: answer {str(one.answer)[:300]} in place of {str(answer)[:300]}"] += 1
            if one.fingerprint not in (None, self.first.fingerprint) and kind not in WITH_BODY:
                changed = self.player.difference(self.first.fingerprint, one.fingerprint)
                self.faults[f"{kind} finds something changed: {str(changed)[:1000]}"] += 1
            if kind == "plain" and one.memory != self.first.memory:
                self.faults[f"memory in use at the start: {one.memory} in place of {self.first.memory}"] += 1

    def has_all_witnesses(self) -> bool:
        seen = self.player.witnesses()
        return all(seen[number] == self.reference.of(kind)[1] for number, kind in self.ids.items())

    def look_at_witnesses(self) -> None:
        seen = self.player.witnesses()
        for number, kind in self.ids.items():
            expected = self.reference.of(kind)[1]
            if seen[number] != expected:
                self.faults[f"{kind}: witnesses {dict(seen[number])} in place of {dict(expected)}"] += 1

    def assert_nothing(self) -> None:
        lines = [f"{n} × {fault}" for fault, n in self.faults.most_common(20)]
        assert not lines, f"HAYATE_MATRIX_SEED={SEED}\n" + "\n".join(lines) + "\n" + self.player.server.log_tail()


def workers_of(played: list[tuple[str, Played | Exception]]) -> set[str]:
    return {one.pid for _, one in played if isinstance(one, Played) and one.pid is not None}


@pytest.mark.parametrize("engine", ENGINES)
def test_mixed(matrix_site: MatrixSite, reference: Reference, pong: str, engine: str) -> None:
    every = 100 if REQUESTS > 10_000 else 20
    chance = random.Random(SEED)
    calm = [kind for kind in KINDS if kind not in RETIRING]
    hostile = [kind for kind in RETIRING if kind not in SLOW]
    third = REQUESTS // 3
    for kind in KINDS:
        reference.of(kind)
    arguments = ("--rewind", "on", "--rewind-verify", str(every))
    with matrix_site.hayate(f"mixed-{engine}", pong, workers=WORKERS, args=arguments, ini=ENGINES[engine]) as player:
        started = time.monotonic()
        judge = Judge(player, reference, player.play("plain"))
        # What a process holds is looked at several times.
        samples: list[dict[str, Held]] = []
        for _ in range(PARTS):
            played = play_all(player, draw(chance, calm, 2 * third // PARTS))
            judge.look_at(played)
            # After an answer its worker still rewinds.
            assert wait_until(lambda: all(w["state"] == "idle" for w in modes.application(player.server)["workers"]))
            samples.append({pid: held(pid) for pid in workers_of(played) if os.path.exists(f"/proc/{pid}")})
        (app,) = player.server.status()["apps"]
        calm_restarts = app["restarts"]

        mixed = [
            chance.choice(hostile) if chance.random() < HOSTILE_SHARE else one
            for one in draw(chance, calm, third)
        ]
        # Each of them once, wherever it comes.
        for at, kind in zip(chance.sample(range(len(mixed)), len(hostile)), hostile, strict=True):
            mixed[at] = kind
        judge.look_at(play_all(player, mixed))
        assert wait_until(lambda: all(w["state"] == "idle" for w in modes.application(player.server)["workers"]))
        wait_until(judge.has_all_witnesses, interval=0.1)
        judge.look_at_witnesses()
        (app,) = player.server.status()["apps"]
        took = time.monotonic() - started
        print(f"\n{len(judge.ids)} requests in {took:.0f} s, seed {SEED}, {app['rewind']}", file=sys.stderr)
        print(f"held, in the course of two thirds: {samples}\nreplaced: {app['restarts']}", file=sys.stderr)
        judge.assert_nothing()
        assert player.machine_code() == (engine == "jit")
        assert not calm_restarts, f"a worker was replaced: {calm_restarts}\n{player.server.log_tail()}"
        assert len(samples[0]) == WORKERS and all(sample.keys() == samples[0].keys() for sample in samples)
        for pid in samples[0]:
            assert len({sample[pid].descriptors for sample in samples}) == 1, samples
            assert least_growth(sample[pid].mappings for sample in samples) <= MAPPINGS_GROWTH, samples
        # Of a single worker it depends on its last requests, by a few of PHP's chunks of 2 MiB, up and down.
        most, total = ([of(one.anonymous_kib for one in sample.values()) for sample in samples] for of in (max, sum))
        assert least_growth(most) <= GROWTH_KIB and least_growth(total) <= WORKERS * GROWTH_KIB, samples
        assert app["fallback"] is None
        assert set(app["restarts"]) <= set(RETIRING.values()), app["restarts"]


def test_mixed_with_state_kept_leaks(matrix_site: MatrixSite, reference: Reference, pong: str) -> None:
    """The same test sees what leaks without rewinding."""
    harmless = ["plain", "statics", "constants", "declarations", "aliases", "umask", "chdir", "setlocale", "sockets"]
    chance = random.Random(SEED)
    with matrix_site.hayate("mixed_kept", pong, workers=WORKERS, args=("--rewind", "off")) as player:
        judge = Judge(player, reference, player.play("plain"))
        played = play_all(player, chance.choices(harmless, k=200))
        judge.look_at(played)
        judge.look_at_witnesses()
    changed = sum(n for fault, n in judge.faults.items() if "finds something changed" in fault)
    assert changed > 100, judge.faults
    assert any("witnesses" in fault for fault in judge.faults), judge.faults
