"""Hayate answers as nginx + php-fpm answer, in classic and in worker mode, but for what accepted.py lists.

Each case is played once against the reference and once against Hayate in each mode. A second run against the reference
shows that a case is steady, so that a difference is never the case's own.
"""

from __future__ import annotations

import importlib
import os
import pathlib
import shutil
from collections.abc import Iterator

import pytest

from lib.process import temporary_directory
from lib.servers import GENERIC_WORKER, Hayate, NginxFpm

from .accepted import ACCEPTED
from .compare import compare, shell_match
from .dsl import HOST, Case
from .play import Answer, play
from .profiles import PROFILES, Profile

HERE = pathlib.Path(__file__).parent
#: When every file of the site was last modified: OPcache takes no file that is younger than two seconds.
MODIFIED = 1_700_000_000


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


class Site:
    """The cases' scripts in a directory that every server's user may read, and one for what scripts write."""

    def __init__(self) -> None:
        self.dir = temporary_directory("parity")
        self.docroot = self.dir / "site"
        self.tmp = self.dir / "tmp"
        self.tmp.mkdir()
        self.tmp.chmod(0o777)
        shutil.copytree(HERE / "cases", self.docroot, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
        (self.docroot / "routing" / "linked.php").symlink_to("plain.php")
        (self.docroot / "routing" / "scripts").symlink_to("directory", target_is_directory=True)
        for path in self.docroot.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
            os.utime(path, (MODIFIED, MODIFIED))

    def root(self, profile: Profile) -> pathlib.Path:
        return self.docroot / profile.root if profile.root else self.docroot

    def ini(self, profile: Profile) -> dict[str, str]:
        fixed = {
            "date.timezone": "UTC",
            "sys_temp_dir": str(self.tmp),
            "upload_tmp_dir": str(self.tmp),
            "session.save_path": str(self.tmp),
            "sendmail_path": "/bin/false",
            "apc.shm_size": "8M",
        }
        places = {"docroot": self.docroot, "tmp": self.tmp}
        return fixed | {key: value.format(**places) for key, value in profile.ini.items()}


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    site = Site()
    yield site
    shutil.rmtree(site.dir)


class Servers:
    """The servers of one profile, started when first asked for, and the reference's answers."""

    def __init__(self, site: Site, profile: Profile) -> None:
        self._site = site
        self._profile = profile
        self._running: dict[str, NginxFpm | Hayate] = {}
        self._reference: dict[str, list[Answer]] = {}
        self.prefix_of_theme = not profile.root

    def server(self, kind: str) -> NginxFpm | Hayate:
        if kind not in self._running:
            self._running[kind] = self._make(kind).start()
        return self._running[kind]

    def _make(self, kind: str) -> NginxFpm | Hayate:
        root, ini = self._site.root(self._profile), self._site.ini(self._profile)
        if kind == "reference":
            front = "/index.php" if self._profile.front else None
            return NginxFpm(root, ini=ini, server_name=HOST, front_controller=front)
        worker = GENERIC_WORKER if kind == "worker" else None
        return Hayate(root, ini=ini, worker=worker, workers=2)

    def play(self, case: Case, kind: str) -> list[Answer]:
        return play(case, self.server(kind), f"/{case.theme}" if self.prefix_of_theme else "")

    def reference(self, case: Case) -> list[Answer]:
        if case.id not in self._reference:
            self._reference[case.id] = self.play(case, "reference")
        return self._reference[case.id]

    def stop(self) -> None:
        servers, self._running = self._running, {}
        for server in servers.values():
            try:
                server.stop()
            finally:
                server.kill()
                server.remove()


@pytest.fixture(scope="session")
def fleet(site: Site) -> Iterator[dict[str, Servers]]:
    fleet = {name: Servers(site, profile) for name, profile in PROFILES.items()}
    yield fleet
    for servers in fleet.values():
        servers.stop()


@pytest.fixture(scope="session")
def worker_mode(fleet: dict[str, Servers], hayate_command: pathlib.Path) -> None:
    """Skips while the host does not offer worker mode, which is asked of PHP itself."""
    probe = Case("capability.php", doc="")
    probe.theme = "server"
    (answer,) = fleet["default"].play(probe, "classic")
    assert answer.response is not None and answer.response.status == 200
    if answer.response.body.strip() != b"worker":
        pytest.skip("this host has no hayate_handle_request()")


def check(case: Case, mode: str, reference: list[Answer], answers: list[Answer]) -> None:
    """Fails with every difference that is not accepted, and every accepted one that did not occur."""
    applicable = [entry for entry in ACCEPTED if mode in entry.modes and shell_match(case.id, entry.case)]
    occurred = set()
    report = []
    for expected, got in zip(reference, answers, strict=True):
        faults = [f"reference: {fault}" for fault in expected.faults] + [f"{mode}: {fault}" for fault in got.faults]
        if expected.response is not None and got.response is not None:
            for difference in compare(expected.request, expected.response, got.response, case.normalise):
                entries = [entry for entry in applicable if entry.covers(expected.request, difference)]
                occurred.update(map(id, entries))
                if not entries:
                    faults.append(str(difference))
        report += [f"  {expected.request.label}: {fault}" for fault in faults]
    for entry in applicable:
        if id(entry) not in occurred:
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
