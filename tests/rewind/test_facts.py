"""The matrix can fail: with state kept, requests do leave traces, in every part of what is looked at.

Without this the other tests would prove nothing: a fingerprint that nothing can change is always the same.
"""

from __future__ import annotations

import collections

import pytest

from .matrix_site import KINDS, LEAVING, MatrixSite

#: Kinds that end the process, take a second, or leave a lock for which the next of them would wait for ever.
LEFT_OUT = {
    *("segfault", "abort", "kill_itself", "stack_overflow", "timeout", "timeout_in_shutdown", *LEAVING),
    *("flock_then_exit", "flock_then_fatal", "sqlite_transaction_then_exit"),
    *("boot_semaphore_held", "boot_semaphore_held_then_fatal"),
}
#: What a request cannot change for the next one: settings, output layer, headers and `$_SESSION` are put back in worker mode too.
NEVER = {"connection", "headers", "iconv", "include path", "ini", "intl", "mbstring", "output", "session"}


@pytest.mark.usefixtures("usual_priority")
def test_with_state_kept_every_fact_leaks(matrix_site: MatrixSite, pong: str) -> None:
    leaking = collections.defaultdict(set)
    names: set[str] = set()
    with matrix_site.hayate("kept", pong, args=("--rewind", "off")) as kept:
        for kind in KINDS:
            if kind in LEFT_OUT:
                continue
            before = kept.play("plain")
            if before.fingerprint is None:
                # The kind before took away what every request needs.
                assert kept.server.reload().returncode == 0
                before = kept.play("plain")
            kept.play(kind)
            after = kept.play("plain")
            if before.pid == after.pid and before.fingerprint and after.fingerprint:
                names |= kept.facts(before.fingerprint).keys()
                for fact in kept.difference(before.fingerprint, after.fingerprint):
                    leaking[fact].add(kind)
    # The kinds that would hold the semaphore are left out.
    assert names - leaking.keys() == NEVER | {"boot: semaphore"}
