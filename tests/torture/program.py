"""A random program: what its boot does, what each of its requests does, and in which order they are made."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import random
import re
from collections.abc import Collection, Iterator

from .steps import BOOT, LAST, REQUEST, WARM, Step

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
    """`boot` and `parts` are steps in order; `order` names the part of each request."""

    boot: tuple[Use, ...]
    parts: tuple[tuple[Use, ...], ...]
    order: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.boot) + sum(map(len, self.parts)) + len(self.order)

    def write(self, to: pathlib.Path) -> None:
        """As files: boot.php and, for each part, request1.php and so on; request0.php does nothing, but in a warm-up request."""
        to.mkdir()
        files = {"boot.php": self.boot, "request0.php": ()}
        files |= {f"request{n}.php": part for n, part in enumerate(self.parts, 1)}
        for name, uses in files.items():
            path = to / name
            warm = f"if (T::$request === 'warm') {{{WARM}}}\n" if name == "request0.php" else ""
            path.write_text("<?php\n" + warm + "".join(_rendered(use, name == "boot.php") for use in uses))
            path.chmod(0o644)
            os.utime(path, (MODIFIED, MODIFIED))
        to.chmod(0o755)

    def text(self) -> str:
        """For people, and for a test that is to keep it."""
        lines = ["boot"] + [f"    {use.step}  {use.php}" for use in self.boot]
        for n, part in enumerate(self.parts, 1):
            lines += [f"part {n}"] + [f"    {use.step}  {use.php}" for use in part]
        return "\n".join([*lines, f"requests: parts {', '.join(map(str, self.order))}"])

    def smaller(self) -> Iterator[Program]:
        """The same with one thing less, in each way there is."""
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


def _rendered(use: Use, boot: bool) -> str:
    if boot or not use.thing:
        return f"/* {use.step} */\n{use.php}\n"
    gone = f"T::say('{use.thing}', 'gone');"
    return f"/* {use.step} */\nif (isset(T::$s['{use.thing}'])) {{\n{use.php}\n}} else {{\n{gone}\n}}\n"


def _filled(step: Step, thing: str, number: int) -> Use:
    # NAME first; a lone N, also at the end of a word in lower case as in itemN, is the number.
    named = step.php.replace("NAME", thing)
    return Use(step.name, thing, re.sub(r"(?<![A-Z])N(?![A-Za-z])", str(number), named))


def draw(chance: random.Random, kinds: Collection[str] = ()) -> Program:
    """A program of a moderate size. `kinds` are those of its things, if it is not to have any."""
    steps = [step for step in BOOT if not kinds or step.kind in kinds]
    boot: list[Use] = []
    things: list[tuple[str, str]] = []
    for n in range(chance.randint(1, 6)):
        step = chance.choice(steps)
        thing = f"{step.kind}{n}"
        things.append((step.kind, thing))
        boot.append(_filled(step, thing, 100 + n))
    by_kind: dict[str, list[Step]] = {}
    for step in REQUEST:
        by_kind.setdefault(step.kind, []).append(step)
    parts = []
    number = 10
    for _ in range(chance.randint(1, 4)):
        part: list[Use] = []
        for _ in range(chance.randint(1, 6)):
            number += 1
            if chance.random() < 0.7:
                kind, thing = chance.choice(things)
            else:
                kind, thing = "", ""
            step = chance.choice(by_kind[kind])
            part.append(_filled(step, thing, number))
            if step.name in LAST:
                break
        parts.append(tuple(part))
    order = [chance.randint(1, len(parts)) for _ in range(chance.randint(3, 8))]
    return Program(tuple(boot), tuple(parts), tuple(order))
