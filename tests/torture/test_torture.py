"""Random programs, each played under php-fpm and rewound: the answers, what is written at a request's end, and the files are the same.

HAYATE_TORTURE_PROGRAMS says how many (default: a few, for CI), HAYATE_TORTURE_SECONDS for how long instead, and
HAYATE_TORTURE_SEED repeats a run. HAYATE_TORTURE_KINDS names the kinds of things that boots make, HAYATE_TORTURE_MODES the
ways in which programs are played (`play.MODES`), if not all are wanted. A program that fails is made as small as it can be
before it is shown, the first HAYATE_TORTURE_SHOWN of them.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sys
import time
from collections.abc import Iterator

import pytest
from lib import php_extensions
from lib.servers import MariaDB, Redis
from lib.process import temporary_directory
from rewind.postgresql import PostgreSQL

from . import play
from .program import Draw
from .shrink import Notes, failures, shrink
from .steps import OF_EXTENSIONS

PROGRAMS = int(os.environ.get("HAYATE_TORTURE_PROGRAMS", "8"))
SECONDS = float(os.environ.get("HAYATE_TORTURE_SECONDS", "0"))
#: The same programs each time, so that CI fails for what has changed; 0: others each time, as `make torture` has it.
SEED = int(os.environ.get("HAYATE_TORTURE_SEED", "2002")) or random.SystemRandom().randrange(1, 1 << 32)
#: What boots make only, such as "mariadb redis"; none: everything.
KINDS = os.environ.get("HAYATE_TORTURE_KINDS", "").split()
#: The ways in which programs are played; none: all.
MODES = os.environ.get("HAYATE_TORTURE_MODES", "").split() or list(play.MODES)
#: Programs that share one server.
TOGETHER = min(12, PROGRAMS)
#: Failures that are made small, which takes long.
SHOWN = int(os.environ.get("HAYATE_TORTURE_SHOWN", "3"))
#: The part of all programs that Hayate may decline to rewind, in any mode, at most; few boots leave what cannot be kept.
DECLINED = 0.1


@pytest.fixture(scope="module")
def env() -> Iterator[dict[str, str]]:
    """Where the servers of databases are, those that programs talk to, and extensions that PHP does not load by itself."""
    directory = temporary_directory("torture-ini")
    (directory / "extensions.ini").write_text(php_extensions.settings(list(OF_EXTENSIONS.values())))
    told = {"PHP_INI_SCAN_DIR": f":{directory}"}
    with contextlib.ExitStack() as servers, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PHP_INI_SCAN_DIR", told["PHP_INI_SCAN_DIR"])  # php-fpm's
        if not KINDS or "mariadb" in KINDS:
            told["HAYATE_MARIADB"] = str(servers.enter_context(MariaDB()).socket)
        if not KINDS or "postgresql" in KINDS:
            told["HAYATE_POSTGRESQL"] = str(servers.enter_context(PostgreSQL()).port)
        if not KINDS or "redis" in KINDS:
            told["HAYATE_REDIS"] = str(servers.enter_context(Redis()).socket)
        yield told
    shutil.rmtree(directory, ignore_errors=True)


def test_torture(env: dict[str, str]) -> None:
    missing = [kind for kind, name in OF_EXTENSIONS.items() if not php_extensions.is_there(name)]
    draw = Draw(random.Random(SEED), KINDS, missing)
    until = time.monotonic() + SECONDS
    played = requests = 0
    notes = Notes()
    while played < PROGRAMS or time.monotonic() < until:
        programs = [draw.program() for _ in range(TOGETHER)]
        wrong = failures(programs, env, MODES, notes)
        played += len(programs)
        requests += sum(len(program.order) for program in programs)
        texts = [shrink(failure, env).text() for failure in wrong[:SHOWN]]
        texts += [f"mode {failure.mode}: {failure.what[:300]}" for failure in wrong[SHOWN:]]
        assert not wrong, f"HAYATE_TORTURE_SEED={SEED}, after {played} programs\n\n" + "\n\n".join(texts)
    declined = notes.declined.total()
    said = "".join(f"\n  {count} programs not rewound: {why}" for why, count in notes.declined.most_common())
    said += "".join(f"\n  {count} workers replaced: {why}" for why, count in notes.replaced.most_common())
    said += "".join(f"\n  {count} programs answered by {some} processes of several workers" for some, count in sorted(notes.processes.items()))
    print(f"\n{played} programs, {requests} requests in each mode, seed {SEED}{said}", file=sys.stderr)
    alone = notes.processes[1] + notes.processes[0]
    assert KINDS or alone <= notes.processes.total() / 2, f"one worker of several answered everything: {notes.processes}"
    assert declined <= max(2, played * DECLINED), f"HAYATE_TORTURE_SEED={SEED}: {declined} of {played} were declined{said}"
