"""What four visitors hand in with a framework's own services arrives as under php-fpm: Symfony and Laravel, as Hayate
recognises them, warm-up requests that use all of it and none, connections opened by each request and kept.

Symfony: Messenger (Redis, MariaDB), Mailer, Lock (flock, Redis), HttpClient, caches (deferred, tagged, Redis, MariaDB),
Doctrine, Monolog's buffer, what waits for the kernel's end. Laravel, with SQLite and files, and with MariaDB and Redis:
queues (database, Redis, at once, after the answer), log channels that keep lines back, caches (file, APCu, Redis,
database, tags, locks), the database, Redis, mails, requests, sessions.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Mapping

import pytest
import requests
from apps import sites
from lib.process import IN_VAIN, temporary_directory
from lib.servers import Hayate, Server

from .world import VISITORS, World, make_tables

HERE = pathlib.Path(__file__).parent / "libraries"
HANDS_IN = "/hands-in"
WARM = [f"--warmup={HANDS_IN}?visitor=Warm"] * 3
KEPT = ["--connections=warm"]
MODES = {
    "cold": ["--warmup=off"],
    "warm": WARM,
    "warm-fork": [*WARM, "--rewind=fork"],
    "cold-fork": ["--warmup=off", "--rewind=fork"],
    "default": [],
    "cold-kept": ["--warmup=off", *KEPT],
    "warm-kept": [*WARM, *KEPT],
}


@dataclasses.dataclass
class Application:
    site: sites.Site
    out: pathlib.Path
    #: What it keeps in files from request to request, emptied before each server.
    files: list[pathlib.Path]
    #: By queue: what takes one piece of work out of it, on the command line.
    workers: dict[str, list[str]]
    #: Connections that a worker opens, and keeps if it is told to.
    connections: int = 0

    def forget(self) -> None:
        for path in self.files:
            for entry in path.glob("*") if path.exists() else []:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def insert(file: pathlib.Path, before: str, text: str) -> None:
    """Puts text before the only place of `before`."""
    content = file.read_text()
    assert content.count(before) == 1, (file, before)
    file.write_text(content.replace(before, text + before))


def environment(world: World, out: pathlib.Path) -> dict[str, str]:
    return {name: value for name, value in world.env(out, "", "").items() if value}


def symfony(directory: pathlib.Path, world: World) -> Application:
    made = sites.unbuilt_symfony(directory)
    out = directory / "out"
    out.mkdir()
    out.chmod(0o777)
    make_tables(out / "orm.db")
    shutil.copy(HERE / "symfony/HandsInAll.php", made.root / "src/Controller")
    for name in ("Told.php", "Registry.php", "WorksOff.php"):
        shutil.copy(HERE / "symfony" / name, made.root / "src")
    shutil.copy(HERE / "symfony/libraries.php", made.root / "config/packages")
    routes = (
        f"    $routes->add('hands_in', '{HANDS_IN}')->controller(App\\Controller\\HandsInAll::class);\n"
        "    $routes->add('arrived', '/arrived')->controller([App\\Controller\\HandsInAll::class, 'arrived']);\n"
        "    $routes->add('worked_off', '/worked-off')->controller([App\\Controller\\HandsInAll::class, 'workedOff']);\n"
    )
    insert(made.root / "config/routes.php", "    $routes->add('home'", routes)
    autoload = made.root / "vendor/autoload.php"
    libraries = ["Symfony", "Twig", "Egulias", "Monolog", *(f"Doctrine/{part}" for part in ("Common", "DBAL", "Deprecations", "Persistence"))]
    autoload.write_text(autoload.read_text().replace("'Symfony', 'Twig']", ", ".join(f"'{name}'" for name in libraries) + "]"))
    # A message is no service.
    services = made.root / "config/services.php"
    services.write_text(services.read_text().replace("'../src/Kernel.php'", "'../src/{Kernel,Told}.php'"))
    more = {"REDIS_DSN": f"redis://{world.redis.socket}", "MAILER_DSN": f"smtp://127.0.0.1:{world.sinks.env['SMTP']}"}
    made = dataclasses.replace(made, env={**made.env, **environment(world, out), **more})
    sites.build_symfony(made)
    workers = {"waiting": ["bin/console", "messenger:consume", "waiting"], "stored": ["bin/console", "messenger:consume", "stored"]}
    workers = {queue: [*command, "--limit=1", "--time-limit=60"] for queue, command in workers.items()}
    return Application(made, out, [made.var / "cache/prod/pools", made.var / "share"], workers, connections=1)


#: Its configuration, with more: lists grow, tables get more entries, and some have others.
MERGED = """<?php
$more = require __DIR__ . '/../more.php';
return array_replace_recursive(array_merge_recursive(require __DIR__ . '/../base/{name}', $more['{key}'] ?? []), $more['instead']['{key}'] ?? []);
"""


def laravel_of_servers(directory: pathlib.Path, world: World) -> Application:
    return laravel(directory, world, {"SERVERS": "1"}, connections=3)  # the database, the cache, the sessions


def laravel(directory: pathlib.Path, world: World, env: Mapping[str, str] | None = None, connections: int = 0) -> Application:
    made = sites.laravel(directory)
    out = directory / "out"
    out.mkdir()
    out.chmod(0o777)
    (made.root / "base").mkdir()
    shutil.copy(HERE / "laravel/config.php", made.root / "more.php")
    for key in ("app", "database", "queue", "cache", "logging", "session"):
        name = f"{key}.php"
        shutil.move(made.root / "config" / name, made.root / "base" / name)
        (made.root / "config" / name).write_text(MERGED.format(name=name, key=key))
    (made.root / "config/mail.php").write_text("<?php return (require __DIR__ . '/../more.php')['mail'];\n")
    shutil.copy(HERE / "laravel/HandsInController.php", made.root / "app/Http/Controllers")
    shutil.copy(HERE / "laravel/Told.php", made.root / "app/Jobs")
    shutil.copy(HERE / "laravel/Channels.php", made.root / "app")
    routes = (
        f"Route::get('{HANDS_IN}', App\\Http\\Controllers\\HandsInController::class);\n"
        "Route::get('/arrived', [App\\Http\\Controllers\\HandsInController::class, 'arrived']);\n"
        "Route::get('/worked-off', [App\\Http\\Controllers\\HandsInController::class, 'workedOff']);\n"
    )
    insert(made.root / "routes/web.php", "Route::get('login'", routes)
    insert(made.root / "vendor/autoload.php", "spl_autoload_register", "require_once '/usr/share/php/GuzzleHttp/autoload.php';\n")
    database = sqlite3.connect(made.var / "database.sqlite")
    for table in (
        "arrivals (id INTEGER PRIMARY KEY {counts}, name VARCHAR(200))",
        "cache (`key` VARCHAR(200) PRIMARY KEY, value TEXT, expiration INTEGER)",
        "jobs (id INTEGER PRIMARY KEY {counts}, queue TEXT, payload TEXT, attempts INTEGER, reserved_at INTEGER,"
        " available_at INTEGER, created_at INTEGER)",
    ):
        database.execute("CREATE TABLE " + table.format(counts=""))
        world.mariadb.sql("CREATE TABLE IF NOT EXISTS " + table.format(counts="AUTO_INCREMENT"), world.mariadb.database)
    database.commit()
    database.close()
    (out / "orm.db").symlink_to(made.var / "database.sqlite")
    made = dataclasses.replace(made, env={**made.env, **environment(world, out), **(env or {})})
    for path in [made.root, *made.root.rglob("*.php")]:
        path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))
    made.run("artisan", "optimize")
    workers = {queue: ["artisan", "queue:work", queue, "--once"] for queue in ("database", "redis")}
    return Application(made, out, [made.var / "framework/cache/data"], workers, connections)


@pytest.fixture(scope="module", params=[symfony, laravel, laravel_of_servers], ids=["symfony", "laravel", "laravel-of-servers"])
def application(request: pytest.FixtureRequest, world: World) -> Iterator[Application]:
    directory = temporary_directory("frameworks")
    directory.chmod(0o755)
    try:
        yield request.param(directory, world)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@dataclasses.dataclass
class Outcome:
    answers: list[object]
    arrived: dict[str, Counter[str]]
    cached: dict[str, list[str]]


def come_again(world: World, application: Application, server: Server) -> list[list[object]]:
    """What four visitors are told who come three times each, and keep their cookies."""
    world.forget(application.out)
    told = []
    for visitor in VISITORS:
        with requests.Session() as her:
            answers = []
            for _ in range(3):
                answer = her.get(server.url + HANDS_IN, params={"visitor": visitor}, timeout=60)
                assert answer.status_code == 200, (answer.text[:3000], server.log()[-3000:])
                answers.append(answer.json())
                time.sleep(0.1)  # its locks are given up just after its answer
            told.append(answers)
    return told


def play(world: World, application: Application, server: Server, expected: Outcome | None = None) -> Outcome:
    """Four visitors, one after the other."""
    # What warm-up requests, and those that looked for their traces, handed in has arrived.
    world.forget(application.out)
    answers = []
    for visitor in VISITORS:
        answer = requests.get(server.url + HANDS_IN, params={"visitor": visitor}, timeout=60)
        assert answer.status_code == 200, (answer.text[:3000], server.log()[-3000:])
        answers.append(answer.json())
        time.sleep(0.1)  # its locks are given up just after its answer
    deadline = time.monotonic() + IN_VAIN
    while True:
        cached = requests.get(server.url + "/arrived", params={"visitors": ",".join(VISITORS)}, timeout=60)
        assert cached.status_code == 200, cached.text[:3000]
        outcome = Outcome(answers, world.arrived(application.out), json.loads(cached.text))
        if expected is None or outcome == expected or time.monotonic() > deadline:
            return outcome
        time.sleep(0.05)


@pytest.fixture(scope="module")
def reference(application: Application, world: World) -> Outcome:
    application.forget()
    with sites.server("reference", application.site, workers=1) as server:
        return play(world, application, server)


def test_php_fpm_gets_all_of_it(reference: Outcome) -> None:
    assert len(reference.arrived) >= 6
    for name, arrived in reference.arrived.items():
        assert set(arrived) == set(VISITORS) and len(set(arrived.values())) == 1, (name, arrived)
    assert reference.cached == dict.fromkeys(reference.cached, VISITORS)
    assert all(answer == reference.answers[0] for answer in reference.answers)


@pytest.mark.parametrize("mode", MODES)
def test_frameworks(mode: str, application: Application, reference: Outcome, world: World) -> None:
    application.forget()
    made = application.site
    flags = [flag for name, value in made.env.items() for flag in ("--env", f"{name}={value}")]
    if "--rewind=fork" not in MODES[mode]:
        flags += ["--rewind", "on", "--rewind-verify", "1"]
    args = [*flags, "--mode", "worker", *MODES[mode]]
    with Hayate(made.root, workers=1, ini=made.ini, args=args, user=sites.USER) as server:
        outcome = play(world, application, server, reference)
        (app,) = server.status()["apps"]
        assert app["restarts"] == {} and app["fallback"] is None, (app, server.log())
        if "kept" in mode:
            assert app["rewind"]["warm"] == application.connections, server.log()
            assert (app["rewind"]["resets"] > 0) == (application.connections > 0)
    assert outcome == reference


@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_a_session_comes_back_to_her_who_left_it(rewind: str, application: Application, world: World) -> None:
    """On two workers, in files and in Redis: what she wrote at the end of one request is what she reads in the next."""
    application.forget()
    made = application.site
    with sites.server("reference", made, workers=1) as server:
        expected = come_again(world, application, server)
    for _, second, third in expected:
        assert (1, 2) in zip(second, third, strict=True), "no session is there"
    application.forget()
    flags = [flag for name, value in made.env.items() for flag in ("--env", f"{name}={value}")]
    with Hayate(made.root, workers=2, ini=made.ini, args=[*flags, "--mode", "worker", "--rewind", rewind], user=sites.USER) as server:
        assert come_again(world, application, server) == expected


@pytest.mark.parametrize("mode", ["classic", "worker"])
def test_workers_on_the_command_line_take_what_requests_have_handed_in(mode: str, application: Application, world: World) -> None:
    """One piece of work at a time, beside the server; what they have made of it is there for the next visitor."""
    application.forget()
    world.forget(application.out)
    made = application.site
    args = [flag for name, value in made.env.items() for flag in ("--env", f"{name}={value}")]
    with Hayate(made.root, workers=2, ini=made.ini, args=[*args, "--mode", mode], user=sites.USER) as server:
        # What warm-up requests, and those that looked for their traces, handed in.
        world.forget(application.out)

        def worked_off() -> list[str] | dict[str, list[str]]:
            answer = requests.get(f"{server.url}/worked-off", timeout=60)
            assert answer.status_code == 200, (answer.text[:3000], server.log()[-3000:])
            return answer.json()

        for visitor in VISITORS[:2]:
            answer = requests.get(server.url + HANDS_IN, params={"visitor": visitor}, timeout=60)
            assert answer.status_code == 200, (answer.text[:3000], server.log()[-3000:])
        symfony = "waiting" in application.workers
        expected = [] if symfony else dict.fromkeys(application.workers, [])
        assert worked_off() == expected
        for visitor in VISITORS[:2]:
            for queue, command in application.workers.items():
                made.run(*command)
                if symfony:
                    expected = [*expected, f"worked off, cli of {visitor}"]
                else:
                    expected = {**expected, queue: [*expected[queue], f"of {visitor}"]}
                assert worked_off() == expected, server.log()
        (app,) = server.status()["apps"]
        assert (app["mode"], app["restarts"], app["fallback"]) == (mode, {}, None), server.log()
