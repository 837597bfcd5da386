"""A recognised Symfony project: the classes that Symfony lists for preloading are loaded before the requests.

The warm-up asks for a page that needs hardly any of them.
"""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import Callable, Iterator

import pytest
import requests
from apps import sites
from lib.process import temporary_directory
from lib.servers import Hayate

HERE = pathlib.Path(__file__).parent / "symfony"
LISTED = "Symfony\\Component\\Form\\FormFactory"
OWN = "App\\Controller\\FileController App\\Controller\\BoardController App\\Form\\NoteType"
APART = "App\\Apart"
WITHOUT = "booting again without warm-up requests"


@pytest.fixture
def made() -> Iterator[sites.Site]:
    directory = temporary_directory("symfony")
    try:
        site = sites.unbuilt_symfony(directory)
        shutil.copy(HERE / "Loaded.php", site.root / "src/EventListener")
        shutil.copy(HERE / "Apart.php", site.root / "src")
        (site.root / "vendor/acme").mkdir()
        shutil.copy(HERE / "asks.php", site.root / "vendor/acme")
        services = site.root / "config/services.php"
        last = "->tag('controller.service_arguments');\n"
        text = services.read_text()
        assert text.count(last) == 1
        more = f"        ->set(\\{APART}::class)->public()->tag('container.no_preload');\n"
        services.write_text(text.replace(last, last.replace(";", "") + more))
        sites.build_symfony(site)
        yield site
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def get(server: Hayate, path: str) -> requests.Response:
    answer = requests.get(server.url + path, headers={"X-Ask": f"{OWN} {LISTED} {APART}"}, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer


def listed(site: sites.Site, code: str, name: str = "one") -> None:
    """One more file for the list, as for a template."""
    cache = site.var / "cache/prod"
    (cache / "twig" / f"{name}.php").write_text(f"<?php {code}")
    (cache / "twig" / f"{name}.php").chmod(0o644)
    (list_of_classes,) = cache.glob("*.preload.php")
    with list_of_classes.open("a") as file:
        file.write(f"require_once __DIR__.'/twig/{name}.php';\n")


def test_classes_that_symfony_lists_are_loaded_before(made: sites.Site) -> None:
    (list_of_classes,) = (made.var / "cache/prod").glob("*.preload.php")
    names = list_of_classes.read_text()
    with sites.server("rewind", made, workers=1, warmup=("/json",)) as server:
        for path in ("/winds", "/write", "/winds"):
            headers = get(server, path).headers
            # Templates are listed by some releases of Symfony only.
            assert headers["X-Loaded"] == LISTED and not [file for file in headers["X-Files"].split() if file in names], (path, headers)
        (app,) = server.status()["apps"]
        assert sum(app["restarts"].values()) == 0 and app["rewind"]["rewinds"] > 0 and app["fallback"] is None
        assert WITHOUT not in server.log()


def test_each_request_loads_them_where_there_is_no_list(made: sites.Site) -> None:
    """So the test above sees what it is about."""
    (list_of_classes,) = (made.var / "cache/prod").glob("*.preload.php")
    list_of_classes.unlink()
    with sites.server("rewind", made, workers=1, warmup=("/json",)) as server:
        for _ in range(2):
            headers = get(server, "/winds").headers
            assert headers["X-Loaded"] == "" and "getBoardControllerService.php" in headers["X-Files"].split(), headers


def throws(site: sites.Site) -> None:
    listed(site, "trigger_error('deprecated of old', E_USER_DEPRECATED); class Parentless extends NotInstalled {}")
    listed(site, "throw new Exception('not now');", "two")


def test_what_cannot_be_loaded_is_left_to_requests(made: sites.Site) -> None:
    throws(made)
    with sites.server("rewind", made, workers=1, warmup=("/json",)) as server:
        assert get(server, "/winds").headers["X-Loaded"] == LISTED
        log = server.log()
        assert "Parentless" not in log and "not now" not in log and "of old" not in log and WITHOUT not in log


def test_what_ends_the_process_or_does_not_come_back_is_left_out(made: sites.Site) -> None:
    """A class that does not fit its interface is a fault that nothing catches."""
    listed(made, "class Wrong implements Countable { public function count(array $of): string { return ''; } }", "wrong")
    listed(made, "exit;", "leaves")
    listed(made, "while (true) { sleep(60); }", "hangs")
    listed(made, "class Last {}", "last")
    with sites.server("rewind", made, workers=1, warmup=("/json",)) as server:
        assert get(server, "/winds").headers["X-Loaded"] == LISTED
        answer = requests.get(server.url + "/winds", headers={"X-Ask": "Wrong Last"}, timeout=60)
        assert answer.headers["X-Loaded"] == "Last", "what comes after them is loaded"
        assert WITHOUT not in server.log() and "Wrong" not in server.log()
        (app,) = server.status()["apps"]
        assert sum(app["restarts"].values()) == 0 and app["rewind"]["rewinds"] > 0


def test_a_list_that_is_too_large_for_memory_limit_is_loaded_in_part(made: sites.Site) -> None:
    """All of it would take 160 MB, of 128: that ends the process, and the application would boot without warm-up."""
    for i in range(20):
        listed(made, "$GLOBALS['held'][] = str_repeat('x', 8 << 20);", f"large{i}")
    with sites.server("rewind", made, workers=1, warmup=("/json",)) as server:
        assert get(server, "/winds").headers["X-Loaded"] == LISTED
        assert WITHOUT not in server.log() and "Allowed memory size" not in server.log()


def shows(site: sites.Site) -> None:
    """A page that tells of a class that is there."""
    listed(site, "class Shown {}")
    listener = site.root / "src/EventListener/Loaded.php"
    before = "        // What warm-up spares"
    text = listener.read_text()
    assert before in text
    show = "        $event->getResponse()->headers->set('X-Kind', in_array('Shown', self::asks('get_declared_classes'), true) ? 'shown' : 'hidden');\n"
    listener.write_text(text.replace(before, show + before))


@pytest.mark.parametrize("harm", [shows])
def test_harm_costs_the_warm_up_and_no_page(made: sites.Site, harm: Callable[[sites.Site], None]) -> None:
    harm(made)
    with sites.server("rewind", made, workers=1, warmup=("/json",)) as server:
        for path in ("/winds", "/json"):
            assert get(server, path).headers.get("X-Kind") in (None, "hidden")
        assert server.logged(WITHOUT)
        (app,) = server.status()["apps"]
        assert app["rewind"]["rewinds"] > 0
