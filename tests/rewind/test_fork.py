"""Where the kernel cannot track what is written, each request runs in a fork: each kind of misbehaviour there."""

from __future__ import annotations

from .matrix_site import KINDS, SLOW, MatrixSite, Reference


def test_each_kind_in_a_fork(matrix_site: MatrixSite, reference: Reference, pong: str) -> None:
    wrong = []
    with matrix_site.hayate("forked", pong, args=("--rewind", "fork")) as forked:
        first = forked.play("plain")
        for kind in KINDS:
            # A fork does not keep the boot's memory mapped: the request crashes, as under php-fpm.
            if kind in SLOW or kind == "ffi_unmaps_the_boot":
                continue
            answer, witnesses = reference.of(kind)
            played, after = forked.play(kind), forked.play("plain")
            if played.answer != answer:
                wrong.append(f"{kind}: answer {str(played.answer)[:200]} in place of {str(answer)[:200]}")
            if after.answer != first.answer or after.fingerprint != first.fingerprint or after.memory != first.memory:
                changed = after.fingerprint and forked.difference(first.fingerprint, after.fingerprint)
                wrong.append(f"{kind} changed something: {after.answer} {str(changed)[:400]}")
            if (seen := forked.witnesses_of(played.id, witnesses)) != witnesses:
                wrong.append(f"{kind}: witnesses {dict(seen)} in place of {dict(witnesses)}")
        (app,) = forked.server.status()["apps"]
    assert not wrong, "\n".join(wrong)
    assert app["rewind"]["tracking"] == "fork" and app["fallback"] is None
    # php-fpm has as many dead children.
    assert all(label.startswith("signal_") for label in app["restarts"]), app["restarts"]
