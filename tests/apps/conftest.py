"""The servers that the applications run on.

`-m "not reference"` leaves out nginx + php-fpm, which only proves that the scenarios are right.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from lib.process import temporary_directory
from lib.servers import Hayate, NginxFpm

from .browser import Browser
from .sites import Site, server

# Those packages are Debian 12's, with its PHP and its libraries.
collect_ignore = [] if platform.freedesktop_os_release().get("VERSION_ID") == "12" else ["test_packaged_applications.py"]
# Nor do packages have those; where nothing may be skipped, who has them says so.
if os.environ.get("HAYATE_REQUIRE_ALL") == "1" and not os.environ.get("HAYATE_FRAMEWORKS"):
    collect_ignore.append("test_frameworks.py")
REFERENCE = pytest.param("reference", marks=pytest.mark.reference)
#: More modes for every application: HAYATE_MODES=fork, by hand. A machine that cannot track what is written serves so.
MORE = os.environ.get("HAYATE_MODES", "").split()
#: What no application here says in its right mind; a server's log must not hold it.
COMPLAINTS = re.compile(r"PHP (?:Warning|Notice|Deprecated|Fatal|Parse|Core)[^\n]*|panicked[^\n]*|signal \d+[^\n]*")
#: But what PHP 8.4 says of Debian's libraries and of CakePHP 5.1, which were written for earlier ones, is not the server's doing.
OF_LIBRARIES = re.compile(
    r"PHP Deprecated: .*(?:Implicitly marking parameter .* in /usr/share/php/|E_STRICT is deprecated in \S*/vendor/cakephp/)"
)


@dataclass
class Served:
    """A site and the server that serves it."""

    mode: str
    site: Site
    server: NginxFpm | Hayate
    #: How many workers the tests gave a reason to be replaced.
    may_restart: int = 0
    #: Parts of complaints that the tests gave a reason for.
    may_complain: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.server.url


@contextmanager
def serving(mode: str, make: Callable[..., Site], *, workers: int = 2, proxied: bool = False) -> Iterator[Served]:
    """A fresh site and its server; in the end neither may have complained, nor a worker been replaced for no reason."""
    directory = temporary_directory("apps")
    try:
        site = make(directory)
        with server(mode, site, workers=workers, proxied=proxied) as running:
            served = Served(mode, site, running)
            yield served
            if isinstance(running, Hayate):
                (app,) = running.status()["apps"]
                assert app["mode"] == ("classic" if mode == "classic" else "worker")
                if mode == "rewind":
                    # Neither given up nor, where the kernel can track what was written, replaced by forks.
                    assert (app["rewind"]["rewind"], app["fallback"]) == ("on", None)
                    assert app["rewind"]["rewinds"] > 0 or app["rewind"]["tracking"] == "fork"
                if mode == "fork":
                    assert (app["rewind"]["rewind"], app["rewind"]["tracking"], app["fallback"]) == ("fork", "fork", None)
                assert sum(app["restarts"].values()) <= served.may_restart, f"{app['restarts']}\n{running.log_tail()}"
            said = [line for line in COMPLAINTS.findall(running.log()) if not OF_LIBRARIES.match(line)]
            complaints = [line for line in said if not any(part in line for part in served.may_complain)]
            assert not complaints, "\n".join(complaints)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def url(served: Served) -> str:
    return served.url


@pytest.fixture
def browser(url: str) -> Browser:
    return Browser(url)
