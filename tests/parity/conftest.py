"""Fixtures of the parity suite: one site, and one set of servers for each configuration."""

from __future__ import annotations

import contextlib
import pathlib
import shutil
from collections.abc import Iterator

import pytest

from .dsl import Case
from .fleet import Servers, Site
from .profiles import PROFILES


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    site = Site()
    yield site
    shutil.rmtree(site.dir)


@pytest.fixture(scope="session")
def fleet(site: Site) -> Iterator[dict[str, Servers]]:
    fleet = {name: Servers(site, profile) for name, profile in PROFILES.items()}
    with contextlib.ExitStack() as stack:
        for servers in fleet.values():
            stack.callback(servers.stop)
        yield fleet


@pytest.fixture(scope="session")
def worker_mode(fleet: dict[str, Servers], hayate_command: pathlib.Path) -> None:
    """Skips while the host does not offer worker mode, which is asked of PHP itself."""
    probe = Case("capability.php", doc="")
    probe.theme = "server"
    (answer,) = fleet["default"].play(probe, "classic")
    assert answer.response is not None and answer.response.status == 200
    if answer.response.body.strip() != b"worker":
        pytest.skip("this host has no hayate_handle_request()")
