"""Fixtures and rules for the whole suite.

A skipped test always prints its reason at the end of the run. With HAYATE_REQUIRE_ALL=1 (CI) a skip is a failure:
what could not be proven was not proven.
"""

from __future__ import annotations

import os
import pathlib
import signal
import sys
from collections.abc import Iterator

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from lib.servers import MariaDB, Redis, hayate_binary  # noqa: E402

REQUIRE_ALL = os.environ.get("HAYATE_REQUIRE_ALL") == "1"


def pytest_configure(config: pytest.Config) -> None:
    # A terminated run takes its servers down like an interrupted one.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if "s" not in config.option.reportchars:
        config.option.reportchars += "s"
    config.addinivalue_line("markers", "reference: runs on nginx + php-fpm, to prove the scenario itself")


def _fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    if REQUIRE_ALL and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"HAYATE_REQUIRE_ALL=1 allows no skip: {reason}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport():
    outcome = yield
    _fail_if_skipped(outcome.get_result())


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report():
    outcome = yield
    _fail_if_skipped(outcome.get_result())


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
