"""Each kind of misbehaviour by itself: the answer is php-fpm's, and the next request meets what the first one met.

Shutdown functions and destructors run as often as under php-fpm. All memory is compared after each request. With the
tracing JIT as without it.
"""

from __future__ import annotations

import collections

import pytest

from .matrix_site import DIFFERENT, KINDS, RETIRING, WITH_BODY, Player, Reference

ONCE = collections.Counter(s=1, d=1)


def restarts(player: Player) -> dict[str, int]:
    (app,) = player.server.status()["apps"]
    assert app["rewind"] is not None and app["fallback"] is None, app
    return app["restarts"]


def test_there_are_enough_kinds() -> None:
    assert len(set(KINDS)) == len(KINDS) >= 200
    assert RETIRING.keys() <= set(KINDS) and DIFFERENT.keys() <= set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_alone(kind: str, alone: Player, reference: Reference) -> None:
    answer, witnesses = reference.of(kind)
    before = alone.play("plain")
    counted = restarts(alone) if kind in RETIRING else {}
    played = alone.play(kind)
    after = alone.play("plain")

    assert played.answer == answer
    assert after.answer == before.answer
    for one in (played, after):
        if one.fingerprint is not None and (one is after or kind not in WITH_BODY):
            assert one.fingerprint == before.fingerprint, alone.difference(before.fingerprint, one.fingerprint)
    assert after.memory == before.memory
    assert alone.witnesses_of(played.id, witnesses) == witnesses
    assert alone.witnesses_of(before.id, ONCE) == ONCE
    assert alone.witnesses_of(after.id, ONCE) == ONCE
    if kind in RETIRING:
        assert after.pid != before.pid
        new = {label: n - counted.get(label, 0) for label, n in restarts(alone).items() if n > counted.get(label, 0)}
        assert new.keys() == {RETIRING[kind]}, new
    else:
        assert after.pid == before.pid, "the worker was replaced\n" + alone.server.log_tail()


def test_the_boots_destructor_runs_once_for_each_request(alone: Player) -> None:
    """After all kinds: what some of them destroyed by themselves is there again, and ends with each request."""
    record = alone.scratch / "permanent"
    alone.play("plain")
    before = record.read_text().count("\n")
    for _ in range(3):
        alone.play("plain")
    assert record.read_text().count("\n") - before == 3


def test_the_jit_compiled(alone: Player, request: pytest.FixtureRequest) -> None:
    """After all kinds: what the same tests say with machine code, they say of machine code."""
    alone.play("plain")
    assert alone.machine_code() == ("jit" in request.node.callspec.params.values())
