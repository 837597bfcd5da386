"""Hayate answers as nginx + php-fpm answer, in classic and in worker mode, but for what accepted.py lists.

Each case is played once against the reference and once against Hayate in each mode. A second run against the reference
shows that a case is steady, so that a difference is never the case's own.
"""

from __future__ import annotations

import importlib
import pathlib

import pytest

from lib import over

from .accepted import ACCEPTED
from .compare import compare, shell_match
from .dsl import Case
from .fleet import Servers
from .play import Answer
from .profiles import PROFILES

HERE = pathlib.Path(__file__).parent
MODES = ("classic", "worker", "rewind")


def load_cases() -> list[Case]:
    """The cases of every theme, themes in alphabetical order."""
    cases = []
    for path in sorted(HERE.glob("cases/*/cases.py")):
        theme = path.parent.name
        for case in importlib.import_module(f"{__package__}.cases.{theme}.cases").CASES:
            case.theme = theme
            cases.append(case)
    return cases


CASES = load_cases()
#: Cases of one profile run one after the other, so that its servers are started once.
BY_PROFILE = sorted(CASES, key=lambda case: list(PROFILES).index(case.profile))


#: Which accepted differences occurred and which cases ran, by mode: for the entries whose case is a pattern.
OCCURRED: dict[str, set[int]] = {"classic": set(), "worker": set(), "rewind": set(), "reference": set()}
RAN: dict[str, set[str]] = {"classic": set(), "worker": set(), "rewind": set(), "reference": set()}


def check(case: Case, mode: str, reference: list[Answer], answers: list[Answer]) -> None:
    """Fails with every difference that is not accepted, and every accepted one that did not occur."""
    applicable = [
        entry
        for entry in ACCEPTED
        if mode in entry.modes and over.protocol in entry.over and shell_match(case.id, entry.case)
    ]
    occurred: set[int] = set()
    faults: dict[str, list[str]] = {}  # with the requests that met with each
    for expected, got in zip(reference, answers, strict=True):
        label = expected.request.label
        for whose, answer in (("reference", expected), (mode, got)):
            for fault in answer.faults:
                faults.setdefault(f"{whose}: {fault}", []).append(label)
        if expected.response is not None and got.response is not None:
            for difference in compare(expected.request, expected.response, got.response, case.normalise):
                entries = [entry for entry in applicable if entry.covers(expected.request, difference)]
                occurred.update(map(id, entries))
                if not entries:
                    faults.setdefault(str(difference), []).append(label)
    report = [f"  {', '.join(labels)}: {fault}" for fault, labels in faults.items()]
    if over.protocol == over.PLAIN:
        RAN[mode].add(case.id)
        OCCURRED[mode] |= occurred
    for entry in applicable:
        # Over TLS and HTTP/2 some requests are left out, and with them what would be accepted.
        if over.protocol == over.PLAIN and "*" not in entry.case and id(entry) not in occurred:
            report.append(f"  accepted.py lists a difference that no longer occurs: {entry}")
    if report:
        pytest.fail(f"{case.id} ({case.doc}), {mode}:\n" + "\n".join(report), pytrace=False)


@pytest.mark.parametrize("case", BY_PROFILE, ids=repr)
def test_reference_is_steady(case: Case, fleet: dict[str, Servers]) -> None:
    servers = fleet[case.profile]
    check(case, "reference", servers.reference(case), servers.play(case, "reference"))


@pytest.mark.parametrize("case", BY_PROFILE, ids=repr)
def test_classic(case: Case, fleet: dict[str, Servers], hayate_command: pathlib.Path) -> None:
    servers = fleet[case.profile]
    check(case, "classic", servers.reference(case), servers.play(case, "classic"))


@pytest.mark.parametrize("case", [case for case in BY_PROFILE if not case.classic_only], ids=repr)
def test_worker(case: Case, fleet: dict[str, Servers], worker_mode: None) -> None:
    servers = fleet[case.profile]
    check(case, "worker", servers.reference(case), servers.play(case, "worker"))


@pytest.mark.parametrize("case", [case for case in BY_PROFILE if not case.classic_only], ids=repr)
def test_rewind(case: Case, fleet: dict[str, Servers], worker_mode: None) -> None:
    servers = fleet[case.profile]
    check(case, "rewind", servers.reference(case), servers.play(case, "rewind"))


@pytest.mark.parametrize("mode", MODES)
def test_accepted_patterns_occurred(mode: str) -> None:
    """Looks back at the run, if it was plain HTTP/1.1; an entry is judged only when every case it covers has run in that mode."""
    if over.protocol != over.PLAIN:
        return
    cases = [case.id for case in CASES if mode == "classic" or not case.classic_only]
    judged = [
        entry
        for entry in ACCEPTED
        if "*" in entry.case
        and mode in entry.modes
        and over.PLAIN in entry.over
        and all(case in RAN[mode] for case in cases if shell_match(case, entry.case))
    ]
    assert not [entry for entry in judged if id(entry) not in OCCURRED[mode]]


def test_every_case_has_its_script() -> None:
    missing = [
        case.id
        for case in CASES
        if not case.script.endswith("/")
        and not (HERE / "cases" / case.theme / (case.script + ("" if "." in case.script else ".php"))).exists()
        and not case.script.startswith("missing")
        and case.script != "linked"
    ]
    assert not missing


def test_every_script_has_its_case() -> None:
    """A script that no case requests proves nothing. Files under other names are what scripts include or serve."""
    named = {(case.theme, case.script) for case in CASES}
    scripts = [path for path in HERE.glob("cases/*/*.php") if path.is_file() and not path.name.startswith("_")]
    idle = [f"{path.parent.name}/{path.stem}" for path in scripts if (path.parent.name, path.stem) not in named]
    assert not [name for name in idle if name not in ("server/capability", "front/index")]


def test_every_accepted_difference_has_a_case() -> None:
    ids = [case.id for case in CASES]
    assert not [entry for entry in ACCEPTED if not any(shell_match(case, entry.case) for case in ids)]


def test_cases_are_named_once_and_many() -> None:
    ids = [case.id for case in CASES]
    assert len(ids) == len(set(ids))
    assert len({(case.theme, case.script) for case in CASES}) >= 80
