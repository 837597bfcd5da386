"""Symfony's profiler and its toolbar in development: WebProfilerBundle on nginx + php-fpm and on Hayate, which serves debug mode in classic mode."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
from collections.abc import Iterator

import pytest
from lib.process import temporary_directory, wait_until
from lib.servers import NginxFpm

from . import sites
from .browser import Browser, Page
from .conftest import REFERENCE

BUNDLE = pathlib.Path("/usr/share/php/Symfony/Bundle/WebProfilerBundle")

PACKAGE = """<?php
namespace Symfony\\Component\\DependencyInjection\\Loader\\Configurator;
return static function (ContainerConfigurator $container): void {
    $container->extension('framework', ['profiler' => ['collect' => true]]);
    $container->extension('web_profiler', ['toolbar' => true]);
};
"""
# Symfony 8 has its routes in PHP.
ROUTES = """
    foreach (['wdt' => '/_wdt', 'profiler' => '/_profiler'] as $name => $prefix) {
        $file = '%s/Resources/config/routing/'.$name;
        $routes->import(is_file("$file.php") ? "$file.php" : "$file.xml")->prefix($prefix);
    }
""" % BUNDLE


def symfony_in_development(directory: pathlib.Path) -> sites.Site:
    """The Symfony application as it is worked on: in debug mode, with the bundle."""
    made = sites.symfony(directory)
    bundles = made.root / "config/bundles.php"
    bundles.write_text(bundles.read_text().replace("];", "    Symfony\\Bundle\\WebProfilerBundle\\WebProfilerBundle::class => ['all' => true],\n];"))
    (made.root / "config/packages/profiler.php").write_text(PACKAGE)
    routes = made.root / "config/routes.php"
    routes.write_text(routes.read_text().replace("    $routes->add('home'", f"{ROUTES}    $routes->add('home'"))
    for path in (made.root / "config").rglob("*.php"):
        path.chmod(0o644)
    made = dataclasses.replace(made, env={**made.env, "APP_ENV": "dev", "APP_DEBUG": "1"})
    shutil.rmtree(made.var / "cache")
    return made


@pytest.fixture(scope="module", params=[REFERENCE, "dev"])
def served(request: pytest.FixtureRequest) -> Iterator[tuple[sites.Site, sites.NginxFpm | sites.Hayate]]:
    if not BUNDLE.exists():
        pytest.skip("php-symfony-web-profiler-bundle is not installed")
    directory = temporary_directory("profiler")
    try:
        site = symfony_in_development(directory)
        if request.param == "reference":
            server = sites.server("reference", site)
        else:
            env = [flag for name, value in site.env.items() for flag in ("--env", f"{name}={value}")]
            server = sites.Hayate(site.root, workers=2, ini=site.ini, args=["--dev", *env], user=sites.USER)
        with server:
            yield site, server
            if not isinstance(server, NginxFpm):
                (app,) = server.status()["apps"]
                assert (app["mode"], app["restarts"]) == ("classic", {}), server.log_tail()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def browser(served: tuple[sites.Site, sites.NginxFpm | sites.Hayate]) -> Browser:
    return Browser(served[1].url)


def shown(browser: Browser, path: str, *expected: str) -> Page:
    """A page of the profiler with all of this on it. A profile is written after the answer, when the kernel terminates."""
    page = browser.get(path)

    def is_there() -> bool:
        nonlocal page
        page = browser.get(path)
        return page.status == 200 and all(text in page.text for text in expected)

    assert wait_until(is_there), (path, expected, page.status, page.text[-6000:])
    return page


def panel(page: Page, name: str, *expected: str) -> Page:
    """What the profiler has kept of the request that was answered with this page."""
    return shown(page.browser, f"{page.response.headers['X-Debug-Token-Link']}?panel={name}", *expected)


def test_each_page_has_the_toolbar_and_a_profile_of_its_own(browser: Browser) -> None:
    tokens = []
    for path, route in (("/winds", "winds"), ("/", "home"), ("/json", "json")):
        page = browser.get(path)
        assert page.status == 200, page.text[:3000]
        tokens.append(page.response.headers["X-Debug-Token"])
        if path != "/json":
            assert f'id="sfwdt{tokens[-1]}"' in page.text, "the toolbar is put into the page"
        shown(browser, f"/_wdt/{tokens[-1]}", "sf-toolbar", route)
        panel(page, "request", tokens[-1], "_route", route)
        panel(page, "time", tokens[-1])
    assert len(set(tokens)) == 3
    shown(browser, f"/_profiler/{tokens[0]}/search/results?limit=10", *tokens)


def test_what_a_visitor_sends_is_in_her_profile_alone(browser: Browser) -> None:
    names = ("ada-of-the-west", "grace-of-the-east")
    sent = [browser.request("POST", f"/echo?of={name}", json={"from": name}) for name in names]
    for page, name, other in zip(sent, names, reversed(names), strict=True):
        assert other not in panel(page, "request", name).text


def test_an_exception_has_a_page_and_a_profile(browser: Browser) -> None:
    page = browser.get("/broken")
    assert page.status == 500 and "broken on purpose" in page.text
    panel(page, "exception", "broken on purpose")


def test_a_change_of_the_code_shows_with_the_next_request(served: tuple[sites.Site, sites.NginxFpm | sites.Hayate], browser: Browser) -> None:
    template = served[0].root / "templates/winds.html.twig"
    assert "blown in from elsewhere" not in browser.get("/winds").text
    template.write_text(template.read_text().replace("{% block body %}", "{% block body %}<p>blown in from elsewhere</p>", 1))
    page = browser.get("/winds")
    assert "blown in from elsewhere" in page.text, page.text[:2000]
