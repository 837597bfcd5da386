"""A random program: what its boot does, what each of its requests does, and in which order they are made."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import random
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Generic, TypeVar

from .steps import BOOT, COSTS_CONNECTION, DECLINED, DRAWN, GUARDED, LAST, OUTSIDE, POSITIONED, REQUEST, WARM, Step

#: Requests of a program at least.
SHORTEST = 6

#: When every file was last modified: OPcache takes no file that is younger than two seconds.
MODIFIED = 1_700_000_000


@dataclasses.dataclass(frozen=True)
class Use:
    """A step with its names filled in. `thing` is what it makes or uses, "" for none."""

    step: str
    thing: str
    php: str


@dataclasses.dataclass(frozen=True)
class Program:
    """`boot` and `parts` are steps in order; `order` names the part of each request.

    `place` is where the loop is called from: "script", "fiber", or "deep" down the C stack. With `at_once` the requests
    are not made one after the other where there are several workers. `warm`: forks, too, come after warm-up requests.
    """

    boot: tuple[Use, ...]
    parts: tuple[tuple[Use, ...], ...]
    order: tuple[int, ...]
    place: str = "script"
    at_once: bool = False
    warm: bool = False

    @property
    def is_declined(self) -> bool:
        return any({use.step, use.step.partition("/")[0]} & DECLINED for use in self.boot)

    def steps(self) -> set[str]:
        """The names of all steps that requests come by."""
        return {use.step for n in self.order for use in self.parts[n - 1]}

    def __len__(self) -> int:
        return len(self.boot) + sum(map(len, self.parts)) + len(self.order) + (self.place != "script") + self.at_once + self.warm

    def write(self, to: pathlib.Path) -> None:
        """As files: boot.php and, for each part, request1.php and so on; request0.php does nothing a visitor asks for."""
        to.mkdir()
        files = {"boot.php": self.boot, "request0.php": (), "place.php": (Use("place", "", f"return '{self.place}';"),)}
        files |= {f"request{n}.php": part for n, part in enumerate(self.parts, 1)}
        for name, uses in files.items():
            path = to / name
            warm = ""
            if name == "request0.php":
                warm = f"if (T::$request === 'busy') {{ T::busy(); }}\nif (T::$request === 'warm') {{{WARM}}}\nif (T::$request === 'late') {{ T::late(); }}\n"
                warm += "if (isset($_SERVER['HAYATE_COMPARISON'])) { T::compared(); }\n"
            pause = "T::pause();\n" if self.at_once and name.startswith("request") else ""
            path.write_text("<?php\n" + warm + "".join(_rendered(use, name == "boot.php") + pause for use in uses))
            path.chmod(0o644)
            os.utime(path, (MODIFIED, MODIFIED))
        to.chmod(0o755)

    def text(self) -> str:
        """For people, and for a test that is to keep it."""
        lines = ["boot"] + [f"    {use.step}  {use.php}" for use in self.boot]
        for n, part in enumerate(self.parts, 1):
            lines += [f"part {n}"] + [f"    {use.step}  {use.php}" for use in part]
        how = f"{' at once' if self.at_once else ''}{', forks warmed' if self.warm else ''}{'' if self.place == 'script' else f', loop in {self.place}'}"
        return "\n".join([*lines, f"requests{how}: parts {', '.join(map(str, self.order))}"])

    def smaller(self) -> Iterator[Program]:
        """The same with less, in each way there is: the large ones first."""
        if self.place != "script":
            yield dataclasses.replace(self, place="script")
        if self.at_once:
            yield dataclasses.replace(self, at_once=False)
        if self.warm:
            yield dataclasses.replace(self, warm=False)
        half = len(self.order) // 2
        for order in (self.order[:half], self.order[half:], self.order[half // 2 : -(half // 2) or None]):
            if 1 < len(order) < len(self.order):
                yield dataclasses.replace(self, order=order)
        for thing in [use.thing for use in self.boot] if len(self.boot) > 1 else []:
            yield self._without(lambda use, thing=thing: use.thing == thing)
        come = tuple(part if n in self.order else () for n, part in enumerate(self.parts, 1))
        if come != self.parts:
            yield dataclasses.replace(self, parts=come)
        for i in range(len(self.order) - 1, -1, -1):
            if len(self.order) > 1:
                yield dataclasses.replace(self, order=self.order[:i] + self.order[i + 1 :])
        for n, part in enumerate(self.parts):
            for i in range(len(part)):
                parts = list(self.parts)
                parts[n] = part[:i] + part[i + 1 :]
                yield dataclasses.replace(self, parts=tuple(parts))
        for i in range(len(self.boot)):
            yield dataclasses.replace(self, boot=self.boot[:i] + self.boot[i + 1 :])

    def _without(self, left_out: Callable[[Use], bool]) -> Program:
        kept = [tuple(use for use in uses if not left_out(use)) for uses in (self.boot, *self.parts)]
        return dataclasses.replace(self, boot=kept[0], parts=tuple(kept[1:]))


def _rendered(use: Use, boot: bool) -> str:
    if boot or not use.thing:
        return f"/* {use.step} */\n{use.php}\n"
    gone = f"T::say('{use.thing}', 'gone');"
    return f"/* {use.step} */\nif (isset(T::$s['{use.thing}'])) {{\n{use.php}\n}} else {{\n{gone}\n}}\n"


def _filled(step: Step, thing: str, number: int) -> Use:
    # NAME first; a lone N, also at the end of a word in lower case as in itemN, is the number.
    named = step.php.replace("NAME", thing)
    return Use(step.name, thing, re.sub(r"(?<![A-Z])N(?![A-Za-z])", str(number), named))


T = TypeVar("T")


class Deck(Generic[T]):
    """Drawn from like cards: by chance, and each comes before any comes again."""

    def __init__(self, chance: random.Random, cards: Sequence[T]) -> None:
        self._chance = chance
        self._cards = cards
        self._left: list[T] = []

    def __len__(self) -> int:
        return len(self._cards)

    def draw(self) -> T:
        if not self._left:
            self._left = list(self._cards)
            self._chance.shuffle(self._left)
        return self._left.pop()


class Draw:
    """Draws programs. `kinds` are those of their things, if they are not to have any; `missing` are those that cannot be."""

    def __init__(self, chance: random.Random, kinds: Collection[str] = (), missing: Collection[str] = ()) -> None:
        self._chance = chance
        steps = [step for step in BOOT if (not kinds or step.kind in kinds) and step.kind not in missing]
        self._boot = {inside: _by_kind(chance, [s for s in steps if not inside or _is_inside(s)]) for inside in (False, True)}
        self._request = {inside: _by_kind(chance, [s for s in REQUEST if not inside or _is_inside(s)]) for inside in (False, True)}
        self._kinds = {inside: Deck(chance, list(of)) for inside, of in self._boot.items() if of}
        looks = [step for step in REQUEST if step.name == f"{step.kind}/look" and step.kind not in COSTS_CONNECTION]
        self._looks = {step.kind: step for step in looks}
        self._in_turn = Deck(chance, [kind for kind in [*POSITIONED, GUARDED, *DRAWN] if kind in self._boot[False]])
        self._place = Deck(chance, ["fiber", "deep"] + ["script"] * 14)
        self._at_once = Deck(chance, [True] * 3 + [False] * 9)
        self._warm = Deck(chance, [True, False])
        self._shared = Deck(chance, [kind for kind in POSITIONED if kind in self._boot[True]])

    def program(self) -> Program:
        chance = self._chance
        at_once = self._at_once.draw() and (True in self._kinds or len(self._in_turn) > 0)
        pile = self._kinds.get(at_once)
        kinds = [pile.draw() for _ in range(chance.randint(1, 4))] if pile else []
        if at_once and self._in_turn:
            kinds[:1] = [self._in_turn.draw()]
        if kinds[0] == GUARDED:
            kinds = [kind for kind in kinds if kind != "stray"]  # which would go on holding the lock
        if any(kind == one.partition("/")[0] for kind in kinds for one in DECLINED):
            # Served in classic mode, where a process keeps what it told the kernel for its next request, as under php-fpm.
            kinds = [kind for kind in kinds if kind != "process"]
        if not at_once and "stray" in kinds and True in self._kinds:
            # Something that it shares with those who come later, as far as they have it open.
            shared = [self._shared.draw()] if self._shared else []
            kinds = ["stray", *shared, *(self._kinds[True].draw() for _ in kinds[2:])]
        inside = at_once or "stray" in kinds
        boot = []
        things = []
        for n, kind in enumerate(kinds):
            thing = f"{kind}{n}"
            things.append((kind, thing))
            boot.append(_filled(self._boot[inside and kind != GUARDED][kind].draw(), thing, 100 + n))
        parts = self._parts(things, inside)
        # Each part comes, and some come again: what one has left is met by another.
        order = list(range(1, len(parts) + 1))
        least = 2 * SHORTEST if at_once else SHORTEST
        order += [chance.choice(order) for _ in range(max(least - len(order), len(order) // 3))]
        chance.shuffle(order)
        return Program(tuple(boot), parts, tuple(order), self._place.draw(), at_once, self._warm.draw())

    def _parts(self, things: Sequence[tuple[str, str]], inside: bool) -> tuple[tuple[Use, ...], ...]:
        """Requests by which each step comes that there is for these things, and some that are for none."""
        chance = self._chance
        left = {}
        for kind, thing in things:
            steps = self._request[inside and kind != GUARDED][kind]
            left[thing] = [(thing, steps.draw()) for _ in range(len(steps))]
        parts = []
        number = 10
        while left:
            # What one request has changed is seen by the next one that looks.
            looked_at = [(kind, thing) for kind, thing in things if kind in self._looks and chance.random() < 0.5]
            part = [_filled(self._looks[kind], thing, number) for kind, thing in looked_at]
            # About one thing, often: what its steps leave for each other wants several of them.
            about = chance.choice(list(left))
            for _ in range(chance.randint(1, 4)):
                number += 1
                drawn = chance.random()
                if drawn < 0.25 or not left:
                    thing, step = "", self._request[inside][""].draw()
                else:
                    pile = about if about in left and drawn < 0.75 else chance.choice(list(left))
                    thing, step = left[pile].pop()
                    if not left[pile]:
                        del left[pile]
                part.append(_filled(step, thing, number))
                if step.name in LAST:
                    break
            parts.append(tuple(part))
        return tuple(parts)


def _is_inside(step: Step) -> bool:
    return step.kind not in OUTSIDE and step.name not in OUTSIDE


def _by_kind(chance: random.Random, steps: Sequence[Step]) -> dict[str, Deck[Step]]:
    kinds = dict.fromkeys(step.kind for step in steps)
    return {kind: Deck(chance, [step for step in steps if step.kind == kind]) for kind in kinds}
