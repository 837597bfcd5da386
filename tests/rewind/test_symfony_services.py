"""A recognised Symfony project: services of Symfony's own are made before the requests, nobody else's ever are.

The application's constructors look for the request and the time: a listener, a listener of Symfony's that it has
replaced by a class of its own, an extension of Twig. Made early, they would answer everybody for nobody.
"""

from __future__ import annotations

import pathlib
import shutil
import time
from collections.abc import Iterator

import pytest
import requests
from apps import sites
from lib.process import temporary_directory
from lib.servers import Hayate

HERE = pathlib.Path(__file__).parent / "symfony"
LISTENERS = "Symfony\\Component\\HttpKernel\\EventListener\\"


def site(directory: pathlib.Path, *, extension: bool) -> sites.Site:
    """The application of the tests, with services that look for the request in their constructors."""
    made = sites.symfony(directory)
    for name in ("FromRequest", "LocaleFromRequest"):
        shutil.copy(HERE / f"{name}.php", made.root / "src/EventListener")
    services = made.root / "config/services.php"
    last = "->tag('controller.service_arguments');\n"
    text = services.read_text()
    assert text.count(last) == 1
    locale = "App\\EventListener\\LocaleFromRequest"
    more = f"        ->remove(\\{locale}::class)->set('locale_listener', \\{locale}::class);\n"
    services.write_text(text.replace(last, last.replace(";", "") + more))
    if extension:
        shutil.copy(HERE / "HostExtension.php", made.root / "src")
        template = made.root / "templates/winds.html.twig"
        template.write_text(template.read_text().replace("<h1>Winds</h1>", "<h1>Winds of {{ host }}</h1>"))
    sites.rebuild_symfony(made)
    return made


@pytest.fixture(scope="module", params=[True, False], ids=["twig-extended", "twig-own"])
def served(request: pytest.FixtureRequest) -> Iterator[tuple[Hayate, bool]]:
    directory = temporary_directory("symfony")
    try:
        made = site(directory, extension=request.param)
        with sites.server("rewind", made, workers=1, warmup=("/winds", "/json", "/none")) as server:
            server.ready_since = time.monotonic()
            yield server, request.param
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def get(url: str, host: str, path: str = "/winds", locale: str = "en") -> requests.Response:
    return requests.get(url + path, headers={"Host": host, "X-Locale": locale}, timeout=60)


def test_constructors_of_the_application_see_the_request(served: tuple[Hayate, bool]) -> None:
    server, extension = served
    for host in ("one.example.org", "two.example.org", "one.example.org"):
        answer = get(server.url, host)
        assert answer.status_code == 200, answer.text
        assert answer.headers["X-Host"] == host
        # Not before the server was ready.
        assert 0 <= int(answer.headers["X-Made-Ms-Ago"]) <= (time.monotonic() - server.ready_since) * 1000
        assert (f"<h1>Winds of {host}</h1>" if extension else "<h1>Winds</h1>") in answer.text


def test_services_of_symfony_are_there_before(served: tuple[Hayate, bool]) -> None:
    server, _ = served
    there = get(server.url, "one.example.org").headers["X-Before"].split()
    assert LISTENERS + "RouterListener" in there
    assert LISTENERS + "ResponseListener" in there
    assert "Symfony\\Bundle\\SecurityBundle\\EventListener\\FirewallListener" in there
    assert not [name for name in there if not name.startswith("Symfony\\")]


def test_what_is_there_before_answers_as_ever(served: tuple[Hayate, bool]) -> None:
    server, _ = served
    assert get(server.url, "one.example.org", "/json").json() == {"status": "OK"}
    missing = get(server.url, "one.example.org", "/none")
    assert missing.status_code == 404 and missing.headers["X-Host"] == "one.example.org"
    broken = get(server.url, "two.example.org", "/broken")
    assert broken.status_code == 500 and broken.headers["X-Host"] == "two.example.org"
    (app,) = server.status()["apps"]
    assert sum(app["restarts"].values()) == 0 and app["rewind"]["rewinds"] > 0
    assert "makes all of its services by itself" not in server.log()


def test_a_container_that_cannot_be_followed_costs_time_only() -> None:
    directory = temporary_directory("symfony")
    try:
        made = site(directory, extension=False)
        made.env["LATE_LISTENER"] = "1"
        with sites.server("rewind", made, workers=1, warmup=("/winds", "/json")) as server:
            answer = get(server.url, "one.example.org")
            assert answer.status_code == 200 and "<h1>Winds</h1>" in answer.text
            assert answer.headers["X-Host"] == "one.example.org"
            assert answer.headers["X-Before"] == LISTENERS + "ResponseListener", "its own, of this request"
            assert get(server.url, "two.example.org").headers["X-Host"] == "two.example.org"
            assert server.logged("Each request makes all of its services by itself")
            assert server.log().count("Each request makes all of its services by itself") == 1
            (app,) = server.status()["apps"]
            assert app["rewind"]["rewinds"] > 0 and app["fallback"] is None
    finally:
        shutil.rmtree(directory, ignore_errors=True)
