"""Slim 3 and Lumen 8: their own front controller, run once up to run(); as under php-fpm, in classic mode, and rewound. What else a front
controller may do before run() is in tests/rewind/test_front_controllers.py."""

from __future__ import annotations

import pathlib
import re
import shutil
from collections.abc import Callable, Iterator

import pytest
import requests
from lib.process import temporary_directory
from lib.servers import Hayate

from .browser import Browser
from .conftest import MORE, REFERENCE, Served, serving
from .sites import USER, Site, change, lumen, recognised, server, slim

FRAMEWORKS = {"slim": slim, "lumen": lumen}


@pytest.fixture(scope="module", params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module", params=[REFERENCE, "classic", "rewind", *MORE])
def served(request: pytest.FixtureRequest, framework: str) -> Iterator[Served]:
    with serving(request.param, FRAMEWORKS[framework]) as served:
        served.may_complain.append("it fails")
        yield served


def test_each_url_has_its_own_page(served: Served, browser: Browser) -> None:
    host = re.escape(served.url)
    assert re.fullmatch(f'<a href="{host}/people/ada">Ada</a>', browser.get("/").text)
    for name in ("ada", "grace", "ada"):
        page = browser.get(f"/people/{name}?page=2")
        assert (page.status, page.text) == (200, f"{name} at /people/{name}?page=2")
    other = browser.get("/", headers={"Host": "other.test"})
    assert other.text == '<a href="http://other.test/people/ada">Ada</a>'
    assert browser.get("/nothing").status == 404
    assert browser.get("/echo").status == 405


def test_a_request_arrives_as_sent(browser: Browser) -> None:
    page = browser.request("POST", "/echo", data={"a": "1", "b": "ä"}, headers={"X-Test": "seen", "Cookie": "k=v"})
    assert (page.status, page.response.json()) == (
        201,
        {"body": {"a": "1", "b": "ä"}, "cookies": {"k": "v"}, "header": "seen"},
    )
    assert not browser.post("/echo").response.json()["body"]


def test_no_request_sees_what_another_left_in_the_application(browser: Browser) -> None:
    counts = {browser.get(path).response.headers["X-Requests"] for path in ("/", "/people/ada", "/", "/people/grace")}
    assert counts == {"1"}


def test_sessions_are_each_visitors_own(url: str) -> None:
    ada, grace = Browser(url), Browser(url)
    assert [ada.get("/session").text, ada.get("/session").text, grace.get("/session").text] == ["1", "2", "1"]


def test_exit_and_errors_end_one_request(browser: Browser) -> None:
    for _ in range(3):
        assert browser.get("/exit").text == "left"
        assert browser.get("/fails").status == 500
        assert browser.get("/people/ada").status == 200


@pytest.fixture
def site() -> Iterator[Site]:
    """The Slim application, to be changed."""
    directory = temporary_directory("apps")
    try:
        yield slim(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in FRAMEWORKS.items()])
def test_nobody_has_to_ask_for_it(make: Callable[[pathlib.Path], Site]) -> None:
    directory = temporary_directory("apps")
    try:
        for args in ((), ("--warmup", "off")):
            mode, log = recognised(make(directory / "-".join(args)), *args)
            assert mode == "worker", log
    finally:
        shutil.rmtree(directory, ignore_errors=True)


#: 54, as many as were asked for when each was answered with the page of the warm-up.
URLS = ["/", *(f"/people/p{n}?page={n}" for n in range(50)), "/people", "/nothing", "/echo"]


@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_a9_18_slim_run_by_its_handler_answers_each_url_with_its_own_page(site: Site, rewind: str) -> None:
    """The worker script that comes to mind. Slim's container keeps the first request; the application boots without warm-up, loudly."""
    worker = site.docroot / "worker.php"
    loop = "while (hayate_handle_request(function () use ($app): void { $app->run(); })) {\n}"
    shutil.copy(site.docroot / "index.php", worker)
    change(worker, "$app->run();", loop)

    def pages(url: str) -> list[tuple]:
        asked = [requests.get(url + path, headers={"Host": "shop.test"}, timeout=60) for path in URLS]
        return [(page.status_code, page.headers.get("X-Requests"), page.text) for page in asked]

    with server("reference", site) as reference:
        right = pages(reference.url)
    assert len(set(right)) > 50 and right[0][0] == 200
    with Hayate(site.root, worker=worker, workers=2, ini=site.ini, user=USER, args=["--rewind", rewind]) as hayate:
        assert pages(hayate.url) == right
        (app,) = hayate.status()["apps"]
        assert app["mode"] == "worker" and app["cold_boot"].startswith("after the warm-up requests"), app
        assert hayate.logged("since visitors would get wrong pages with them")
        assert f"booted without warm-up requests: {app['cold_boot']}" in hayate.run("status").stdout
