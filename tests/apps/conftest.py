"""The servers that the applications run on.

`-m "not reference"` leaves out nginx + php-fpm, which only proves that the scenarios are right.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from lib.process import temporary_directory
from lib.servers import Hayate, NginxFpm

from .sites import Site, server

REFERENCE = pytest.param("reference", marks=pytest.mark.reference)
#: What no application here says in its right mind; a server's log must not hold it.
COMPLAINTS = re.compile(r"PHP (?:Warning|Notice|Deprecated|Fatal|Parse|Core)[^\n]*|panicked[^\n]*|signal \d+[^\n]*")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "reference: runs on nginx + php-fpm, to prove the scenario itself")


@contextmanager
def serving(mode: str, make: Callable[..., Site]) -> Iterator[tuple[Site, NginxFpm | Hayate]]:
    """A fresh site and its server; at the end neither may have complained, and no worker may have been replaced."""
    directory = temporary_directory("apps")
    try:
        site = make(directory)
        with server(mode, site) as running:
            yield site, running
            if isinstance(running, Hayate):
                (app,) = running.status()["apps"]
                assert app["mode"] == mode
                assert app["restarts"] == {}, f"workers were replaced: {app['restarts']}\n{running.log_tail()}"
            complaints = COMPLAINTS.findall(running.log())
            assert not complaints, "\n".join(complaints)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
