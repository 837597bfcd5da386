"""Random programs, each played under php-fpm and rewound: the answers, what is written at a request's end, and the files are the same.

HAYATE_TORTURE_PROGRAMS says how many (default: a few, for CI), HAYATE_TORTURE_SECONDS for how long instead, and
HAYATE_TORTURE_SEED repeats a run. HAYATE_TORTURE_KINDS names the kinds of things that boots make, if not all are wanted. A
program that fails is made as small as it can be before it is shown, the first HAYATE_TORTURE_SHOWN of them.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Iterator

import pytest
from lib.servers import MariaDB, Redis
from rewind.postgresql import PostgreSQL

from .program import Draw
from .shrink import Notes, failures, shrink

PROGRAMS = int(os.environ.get("HAYATE_TORTURE_PROGRAMS", "24"))
SECONDS = float(os.environ.get("HAYATE_TORTURE_SECONDS", "0"))
#: The same programs each time, so that CI fails for what has changed; 0: others each time, as `make torture` has it.
SEED = int(os.environ.get("HAYATE_TORTURE_SEED", "2002")) or random.SystemRandom().randrange(1, 1 << 32)
#: What boots make only, such as "mariadb redis"; none: everything.
KINDS = os.environ.get("HAYATE_TORTURE_KINDS", "").split()
#: Programs that share one server.
TOGETHER = min(12, PROGRAMS)
#: Failures that are made small, which takes long.
SHOWN = int(os.environ.get("HAYATE_TORTURE_SHOWN", "3"))
#: The part of all programs that Hayate may decline to rewind, in any mode, at most; few boots leave what cannot be kept.
DECLINED = 0.1


@pytest.fixture(scope="module")
def env() -> Iterator[dict[str, str]]:
    """Where the servers of databases are."""
    with MariaDB() as mariadb, PostgreSQL() as postgresql, Redis() as redis:
        yield {"HAYATE_MARIADB": str(mariadb.socket), "HAYATE_POSTGRESQL": str(postgresql.port), "HAYATE_REDIS": str(redis.socket)}


def test_torture(env: dict[str, str]) -> None:
    draw = Draw(random.Random(SEED), KINDS)
    until = time.monotonic() + SECONDS
    played = requests = 0
    notes = Notes()
    while played < PROGRAMS or time.monotonic() < until:
        programs = [draw.program() for _ in range(TOGETHER)]
        wrong = failures(programs, env, notes=notes)
        played += len(programs)
        requests += sum(len(program.order) for program in programs)
        texts = [shrink(failure, env).text() for failure in wrong[:SHOWN]]
        texts += [f"mode {failure.mode}: {failure.what[:300]}" for failure in wrong[SHOWN:]]
        assert not wrong, f"HAYATE_TORTURE_SEED={SEED}, after {played} programs\n\n" + "\n\n".join(texts)
    declined = notes.declined.total()
    said = "".join(f"\n  {count} programs not rewound: {why}" for why, count in notes.declined.most_common())
    said += "".join(f"\n  {count} workers replaced: {why}" for why, count in notes.replaced.most_common())
    print(f"\n{played} programs, {requests} requests in each mode, seed {SEED}{said}", file=sys.stderr)
    assert declined <= max(2, played * DECLINED), f"HAYATE_TORTURE_SEED={SEED}: {declined} of {played} were declined{said}"
