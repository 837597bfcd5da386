"""Finds what is wrong in a set of programs, and makes each failing one as small as it can be while it still fails."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

from .play import MODES, Bench, difference
from .program import Program

#: Smaller ones that are tried at once.
AT_ONCE = 24


@dataclasses.dataclass(frozen=True)
class Failure:
    """A program that Hayate does not answer as php-fpm does, in this mode."""

    program: Program
    mode: str
    what: str

    def text(self) -> str:
        return f"mode {self.mode}: {self.what}\n{self.program.text()}"


@dataclasses.dataclass
class Notes:
    """What Hayate did not do to programs that ran as they should."""

    #: Programs that were not rewound in some mode, by the reason that Hayate gave; but for those that cannot be.
    declined: Counter[str] = dataclasses.field(default_factory=Counter)
    #: Workers that were replaced, by mode and reason.
    replaced: Counter[str] = dataclasses.field(default_factory=Counter)
    #: How many processes of several workers answered a program's requests; as often as that was so.
    processes: Counter[int] = dataclasses.field(default_factory=Counter)


def failures(
    programs: Sequence[Program], env: Mapping[str, str], modes: Sequence[str] = tuple(MODES), notes: Notes | None = None
) -> list[Failure]:
    """The failing ones, each in the first mode in which it fails.

    What php-fpm itself answers differently the second time says nothing.
    """
    with Bench(programs, env) as bench:
        expected = bench.reference()
        found = bench.hayate(modes, expected)
    if notes is not None:
        notes.processes.update(len(outcome.processes) for outcome in found.get("several", []))
        for program, *of_program in zip(programs, *found.values(), strict=True):
            said = [outcome.declined for outcome in of_program if outcome.declined is not None and not program.is_declined]
            notes.declined.update(said[:1])
            for mode, outcome in zip(found, of_program, strict=True):
                notes.replaced.update({f"{mode}: {why}": count for why, count in outcome.restarts.items()})
    wrong: dict[int, Failure] = {}
    for mode, outcomes in found.items():
        for i, outcome in enumerate(outcomes):
            if any(status == 502 for status, _, _ in expected[i].answers):
                continue  # PHP itself has crashed
            what = difference(expected[i], outcome, ordered=not (mode == "warm" or (mode == "fork" and programs[i].warm)))
            if what is not None and i not in wrong:
                wrong[i] = Failure(programs[i], mode, what)
    if not wrong:
        return []
    suspects = list(wrong)
    with Bench([programs[i] for i in suspects], env) as bench:
        steady = bench.reference()
    return [
        wrong[i] for i, again in zip(suspects, steady, strict=True) if difference(expected[i], again) is None
    ]


def shrink(failure: Failure, env: Mapping[str, str], rounds: int = 40) -> Failure:
    """The same failure in a program from which nothing can be left out."""
    for _ in range(rounds):
        candidates = list(failure.program.smaller())
        smaller = None
        while candidates and smaller is None:
            some, candidates = candidates[:AT_ONCE], candidates[AT_ONCE:]
            smaller = min(failures(some, env, [failure.mode]), key=lambda f: len(f.program), default=None)
        if smaller is None:
            return failure
        failure = smaller
    return failure
