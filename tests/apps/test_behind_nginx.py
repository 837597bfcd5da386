"""The applications behind nginx, as docs/deployment.md has it: TLS there, a unix socket to Hayate.

None of them is told that it is behind a proxy: Hayate believes the proxy, and says so to PHP.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from lib.servers import MariaDB

from . import sites
from . import test_laravel as laravel
from . import test_symfony as symfony
from . import test_wordpress as wordpress
from .browser import Browser
from .conftest import Served, serving
from .proxy import HOST, NginxProxy

#: What a visitor may claim, and nobody is to believe.
FORGED = {"X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "http", "Forwarded": "host=evil.example"}


@pytest.fixture
def browser() -> Browser:
    return Browser(f"https://{HOST}")


@contextmanager
def proxied(mode: str, make: Callable[..., sites.Site], browser: Browser, workers: int = 2) -> Iterator[Served]:
    """The site in that mode behind nginx, whose certificate the browser trusts."""
    with serving(mode, make, workers=workers, proxied=True) as served, NginxProxy(served.site.socket) as nginx:
        browser.session.verify = str(nginx.certificate)
        with nginx.resolved():
            yield served


def test_symfony(browser: Browser) -> None:
    with proxied("rewind", sites.symfony, browser):
        for headers in ({}, FORGED):
            page = browser.request("PUT", "/echo?a=1", json={}, headers=headers)
            assert page.response.json()["uri"] == f"https://{HOST}/echo?a=1"
        page = symfony.log_in(browser, "grace", "compiler")
        assert page.url == f"https://{HOST}/account"
        assert page.one("//h1") == "Account of grace"


def test_laravel(browser: Browser) -> None:
    with proxied("rewind", sites.laravel, browser):
        for headers in ({}, FORGED):
            page = browser.request("PUT", "/api/echo?a=1", json={}, headers=headers)
            assert (page.response.json()["uri"], page.response.json()["home"]) == (
                f"https://{HOST}/api/echo?a=1",
                f"https://{HOST}",
            )
        page = laravel.log_in(browser, "grace")
        assert page.url == f"https://{HOST}/account"
        assert page.one("//h1") == "Account of grace"


def test_wordpress(browser: Browser, mariadb: MariaDB) -> None:
    with proxied("classic", sites.wordpress, browser, workers=4) as served:
        wordpress.set_up(served, mariadb, "wordpress_proxied", browser)
        page = wordpress.log_in(browser)
        assert page.url == f"https://{HOST}/wp-admin/"
        assert [cookie.secure for cookie in browser.session.cookies if "_sec_" in cookie.name] == [True, True]
        page = browser.get("/")
        links = set(re.findall(r"(?:href|src)=.(https?://[^/\"' ]+)", page.text))
        assert f"https://{HOST}" in links
        assert not [link for link in links if link.startswith("http://")]
