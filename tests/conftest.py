"""Fixtures and rules for the whole suite.

A skipped test always prints its reason at the end of the run. With HAYATE_REQUIRE_ALL=1 (CI) a skip is a failure:
what could not be proven was not proven.
"""

from __future__ import annotations

import os
import pathlib
import signal
import sys
import threading
import zlib
from collections.abc import Iterator

import pytest
import requests

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from lib import over  # noqa: E402
from lib.servers import MariaDB, Redis, hayate_binary  # noqa: E402

# Folders and files whose tests measure: beside them runs only what takes what they leave (scripts/idle).
ALONE = ("lab/test_known_costs.py", "lab/test_load.py", "lab/test_load_proof.py", "lab/test_run.py", "soak")
# Files that take minutes beside others: they begin first, so that nothing waits for one of them at the end.
LONGEST = (
    "lab/test_engines.py", "pool/test_frameworks.py", "pool/test_loaded_ahead.py", "pool/test_master.py", "pool/test_slow_requests.py",
    "pool/test_supervision.py", "pool/test_upgrade.py", "pool/test_waits.py", "pool/test_warm_frameworks.py", "protocol/test_over.py", "rewind/test_boot_locks.py",
    "rewind/test_clocks.py", "rewind/test_frameworks.py", "rewind/test_front_controllers.py", "rewind/test_libraries.py",
    "rewind/test_opened_again.py", "rewind/test_randomness.py", "rewind/test_symfony_services.py", "rewind/test_time_limit.py",
    "security/test_slow_attacks.py", "torture/test_torture.py",
)  # fmt: skip


def _session(self: requests.Session, begin=requests.Session.__init__) -> None:
    """Proxies of the environment are not for this machine's servers, and to look for them and for ~/.netrc takes two fifths of a request's time."""
    begin(self)
    self.trust_env, self.verify = False, os.environ.get("REQUESTS_CA_BUNDLE") or True


requests.Session.__init__ = _session
REQUIRE_ALL = os.environ.get("HAYATE_REQUIRE_ALL") == "1"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--over", choices=(over.PLAIN, over.TLS, over.H2), default=over.PLAIN, help="what requests go over")


def pytest_configure(config: pytest.Config) -> None:
    over.protocol = config.option.over
    over.install()
    # A terminated run takes its servers down like an interrupted one. Processes of pytest-xdist run the tests in their main thread, unless
    # a task before them has not quite ended there (execnet 1.9): then in another one, which may not set handlers.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    if "s" not in config.option.reportchars:
        config.option.reportchars += "s"
    config.addinivalue_line("markers", "reference: runs on nginx + php-fpm, to prove the scenario itself")
    config.addinivalue_line("markers", "plain(reason): left out of a run with --over, where it has no place")
    config.addinivalue_line("markers", "alone: measures, or needs the machine to itself; set for what is in ALONE")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if over.protocol != over.PLAIN:
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("plain")])
        items[:] = [item for item in items if not item.get_closest_marker("plain")]
    here = pathlib.Path(__file__).parent
    for item in items:
        if any(item.path.is_relative_to(here / alone) for alone in ALONE):
            item.add_marker("alone")
    if "PYTEST_XDIST_WORKER" in os.environ:
        # Files are handed out in this order, which is the same for each process: those beside each other, of one kind, wait or compute alike.
        items.sort(key=lambda item: _turn(item.path.relative_to(here).as_posix()))


def _turn(file: str) -> tuple[bool, int]:
    return file not in LONGEST, zlib.crc32(file.encode())


def _fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    if REQUIRE_ALL and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"HAYATE_REQUIRE_ALL=1 allows no skip: {reason}"


def pytest_unconfigure() -> None:
    over.remove_certificate()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport():
    outcome = yield
    _fail_if_skipped(outcome.get_result())


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report():
    outcome = yield
    _fail_if_skipped(outcome.get_result())


@pytest.fixture(scope="session", autouse=True)
def directories_that_servers_may_enter(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Servers drop to www-data; pytest's directories for one run, and for one of its processes, are closed to it."""
    for path in (base := tmp_path_factory.getbasetemp(), *base.parents):
        if path.name.startswith(("pytest-", "popen-")):
            path.chmod(0o755)


@pytest.fixture(scope="module")
def usual_priority() -> Iterator[None]:
    """For who looks at priorities, or asks for a lower one: under `nice -n 19` there is none."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    except PermissionError:
        pytest.skip(f"this was started with `nice` of {before}, and only root may go back to 0")
    yield
    os.setpriority(os.PRIO_PROCESS, 0, before)


@pytest.fixture(scope="session")
def hayate_command() -> pathlib.Path:
    """The binary under test; a test that needs it is skipped while it does not exist."""
    binary = hayate_binary()
    if not binary.exists():
        pytest.skip(f"{binary} is not built")
    return binary


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDB]:
    with MariaDB() as server:
        yield server


@pytest.fixture(scope="session")
def redis() -> Iterator[Redis]:
    with Redis() as server:
        yield server
