"""Nobody sees somebody else: fifty people logged in at once, on Symfony and Laravel, with services that do not forget.

Requests of all of them are mixed at random over a few workers. Each answer may speak of its own visitor only. With
state kept the same test sees what leaks.

HAYATE_VISITOR_REQUESTS says how many requests (default 500, for CI).
"""

from __future__ import annotations

import collections
import os
import pathlib
import random
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator

import pytest
from apps import sites
from apps.browser import Browser
from lib.process import temporary_directory
from lib.servers import PHP, Hayate, Redis

HERE = pathlib.Path(__file__).parent / "visitors"
REQUESTS = int(os.environ.get("HAYATE_VISITOR_REQUESTS", "500"))
PEOPLE = 50
CLIENTS = 6
PASSWORD = "a password for all"
#: password_hash(PASSWORD) at the least cost.
HASH_CODE = f"echo password_hash('{PASSWORD}', PASSWORD_BCRYPT, ['cost' => 4]);"


def person(n: int) -> str:
    return f"visitor{n:02}"


def replace(file: pathlib.Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1, f"{file}: {old!r} is not there once"
    file.write_text(text.replace(old, new))


def password_hash() -> str:
    command = [PHP, "-d", "xdebug.mode=off", "-r", HASH_CODE]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def symfony(directory: pathlib.Path, handler: str = "") -> sites.Site:
    """The Symfony application with the leaky service, its route, and fifty people; their sessions are kept by PHP's own handler, or another."""
    site = sites.unbuilt_symfony(directory)
    if handler:
        replace(site.root / "config/packages/framework.php", "'handler_id' => null", handler)
    shutil.copy(HERE / "Leaky.php", site.root / "src")
    shutil.copy(HERE / "LeakySymfony.php", site.root / "src/Controller/LeakyController.php")
    route = "    $routes->add('leaky', '/leaky')->controller(\\App\\Controller\\LeakyController::class);\n"
    first = "    $routes->add('json'"
    replace(site.root / "config/routes.php", first, route + first)
    people = "".join(
        f"'{person(n)}' => ['password' => '{password_hash()}', 'roles' => ['ROLE_USER']],\n" for n in range(PEOPLE)
    )
    security = site.root / "config/packages/security.php"
    replace(security, "['memory' => ['users' => [\n", "['memory' => ['users' => [\n" + people)
    rules = "'access_control' => [\n"
    replace(security, rules, rules + "['path' => '^/leaky', 'roles' => 'ROLE_USER'],\n")
    sites.build_symfony(site)
    return site


def laravel(directory: pathlib.Path) -> sites.Site:
    """The Laravel application with the leaky singleton, its route, and fifty people."""
    site = sites.laravel(directory)
    shutil.copy(HERE / "Leaky.php", site.root / "app")
    shutil.copy(HERE / "LeakyLaravel.php", site.root / "app/Http/Controllers/LeakyController.php")
    provider = site.root / "app/Providers/AppServiceProvider.php"
    singleton = "$this->app->singleton(Trail::class);"
    replace(provider, singleton, singleton + "\n        $this->app->singleton(\\App\\Leaky::class);")
    route = "    Route::get('leaky', \\App\\Http\\Controllers\\LeakyController::class);\n"
    account = "    Route::get('account'"
    replace(site.root / "routes/web.php", account, route + account)
    rows = ", ".join(f"('{person(n)}', '{person(n)}@example.org', '{password_hash()}')" for n in range(PEOPLE))
    site.run("-r", f"""(new PDO('sqlite:storage/database.sqlite'))->exec("INSERT INTO users (name, email, password)
        VALUES {rows.replace('$', chr(92) + '$')}");""")
    site.run("artisan", "optimize")
    return site


class Crowd:
    """Fifty logged-in people, and what was wrong with what they saw."""

    def __init__(self, url: str, framework: str) -> None:
        self.faults: collections.Counter[str] = collections.Counter()
        self.workers = 0
        self._people = [(person(n), Browser(url), threading.Lock()) for n in range(PEOPLE)]
        self._visits: dict[str, list[str]] = collections.defaultdict(list)
        for name, browser, _ in self._people:
            fields = {"_username": name} if framework == "symfony" else {"email": f"{name}@example.org"}
            fields["_password" if framework == "symfony" else "password"] = PASSWORD
            page = browser.get("/login").submit(fields)
            assert page.one("//h1") == f"Account of {name}", page.text

    def visit(self, number: int) -> None:
        threads = [threading.Thread(target=self._run, args=(number // CLIENTS,)) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _run(self, number: int) -> None:
        chance = random.Random()
        for _ in range(number):
            name, browser, lock = chance.choice(self._people)
            # The next of the same visitor's requests would wait for the session's lock anyway.
            with lock:
                try:
                    self._one(name, browser, chance.random() < 0.7)
                except Exception as error:  # noqa: BLE001 (all are faults here)
                    self.faults[f"{error!r}"[:300]] += 1

    def _one(self, name: str, browser: Browser, leaky: bool) -> None:
        page = browser.get("/leaky" if leaky else "/account")
        if page.status != 200:
            self.faults[f"{page.path}: {page.status} {page.text[:200]}"] += 1
            return
        strangers = set(re.findall(r"visitor\d\d", page.text)) - {name}
        if strangers:
            self.faults["a stranger's name"] += 1
        if not leaky:
            if page.one("//h1") != f"Account of {name}":
                self.faults["somebody else's account"] += 1
            return
        found = page.response.json()
        if found["user"] != name:
            self.faults["another user"] += 1
        if found["service"] is not None:
            self.faults["the service remembers"] += 1
        if found["static"]:
            self.faults["the static cache remembers"] += 1
        visits = self._visits[name]
        if found["session"] != visits:
            self.faults[f"the session has {found['session']} in place of {visits}"] += 1
        self._visits[name] = [*visits[-3:], name]


@pytest.fixture(scope="module", params=["symfony", "laravel"])
def site(request: pytest.FixtureRequest) -> Iterator[tuple[str, sites.Site]]:
    directory = temporary_directory("visitors")
    yield request.param, {"symfony": symfony, "laravel": laravel}[request.param](directory)
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def place() -> Iterator[pathlib.Path]:
    directory = temporary_directory("visitors")
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def serve(site: sites.Site, *args: str) -> Hayate:
    env = [flag for name, value in site.env.items() for flag in ("--env", f"{name}={value}")]
    return Hayate(site.root, workers=4, ini=site.ini, user=sites.USER, args=("--mode", "worker", *env, *args))


def test_nobody_sees_somebody_else(site: tuple[str, sites.Site]) -> None:
    framework, files = site
    with serve(files, "--rewind", "on", "--rewind-verify", "100") as server:
        crowd = Crowd(server.url, framework)
        crowd.visit(REQUESTS)
        (app,) = server.status()["apps"]
        assert not crowd.faults, crowd.faults.most_common(8)
    assert app["restarts"] == {} and app["fallback"] is None
    assert app["rewind"]["rewinds"] >= REQUESTS


@pytest.mark.parametrize("handler", ["redis of session.save_handler", "redis of Symfony"])
def test_nobody_sees_somebody_else_whose_session_is_in_redis(handler: str, redis: Redis, place: pathlib.Path) -> None:
    """Recognised, by the extension's own handler, which locks, and by one that the container makes."""
    own = {"session.save_handler": "redis", "session.save_path": f"tcp://127.0.0.1:{redis.port}", "redis.session.locking_enabled": "1"}
    service = f"'handler_id' => 'redis://127.0.0.1:{redis.port}'"
    files = symfony(place, service) if "Symfony" in handler else symfony(place)
    files.ini.update({"session.save_path": "/nonexistent"} if "Symfony" in handler else own)
    for connections in ("request", "warm"):
        with serve(files, "--rewind", "on", "--rewind-verify", "50", "--connections", connections) as server:
            crowd = Crowd(server.url, "symfony")
            crowd.visit(120)
            (app,) = server.status()["apps"]
            assert not crowd.faults, crowd.faults.most_common(8)
        assert app["restarts"] == {} and app["fallback"] is None
    there = subprocess.run(["redis-cli", "-p", str(redis.port), "DBSIZE"], check=True, capture_output=True, text=True, timeout=60).stdout
    assert int(there) >= PEOPLE


def test_with_state_kept_they_do(site: tuple[str, sites.Site]) -> None:
    """The same with the application's own worker script, which resets what frameworks know how to reset."""
    framework, files = site
    with sites.server("worker", files, workers=4) as server:
        crowd = Crowd(server.url, framework)
        crowd.visit(min(REQUESTS, 300))
    assert crowd.faults["a stranger's name"] > 50 and crowd.faults["the static cache remembers"] > 50, crowd.faults
