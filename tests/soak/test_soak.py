"""The soak, for as long as CI has: HAYATE_SOAK_SECONDS (default 10); `make soak` runs it for longer."""

from __future__ import annotations

import os
import random

from .soak import soak

SECONDS = float(os.environ.get("HAYATE_SOAK_SECONDS", "10"))
SEED = int(os.environ.get("HAYATE_SOAK_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)


def test_soak(hayate_command) -> None:
    faults = soak(SECONDS, SEED)
    assert not faults, f"HAYATE_SOAK_SEED={SEED}\n" + "\n".join(faults[:30])


def test_soak_with_fronts_that_are_killed(hayate_command) -> None:
    faults = soak(SECONDS * 2 / 3, SEED, fronts=True)
    assert not faults, f"HAYATE_SOAK_SEED={SEED}\n" + "\n".join(faults[:30])
