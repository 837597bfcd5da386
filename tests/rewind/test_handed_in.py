"""What four visitors hand in to real libraries arrives four times, and nobody else's with it.

Monolog, Guzzle and Symfony's cache write when the script ends: from destructors and shutdown functions of objects that
the boot or a warm-up request has made. php-fpm, which makes them for each request, says what is right.
"""

from __future__ import annotations

import json
import pathlib
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
import requests
from apps import sites
from lib.process import temporary_directory, wait_until
from lib.servers import Hayate, Server

HERE = pathlib.Path(__file__).parent / "endings"
VISITORS = ["Ada", "Grace", "Joan", "Mary"]

MODES = {
    "php-fpm": None,
    "recognised": [],
    "recognised-warmed": ["--warmup=/hands-in", "--warmup=/hands-in", "--warmup=/json"],
    "recognised-cold": ["--warmup=off"],
    "worker": ["--warmup=/json"],
    "worker-warmed": ["--warmup=/hands-in", "--warmup=/hands-in"],
    "worker-warmed-once": ["--warmup=/hands-in"],
    "worker-reset": ["--env=RESET=1", "--warmup=/hands-in"],
    "worker-fork": ["--rewind=fork", "--env=RESET=1", "--warmup=/hands-in"],
    "recognised-fork": ["--rewind=fork"],
    "recognised-fork-cold": ["--rewind=fork", "--warmup=off"],
    "worker-fork-cold": ["--rewind=fork", "--warmup=off"],
    "worker-fork-private": ["--rewind=fork", "--env=PAIR=1", "--env=RESET=1", "--warmup=/hands-in"],
    "worker-private-cold": ["--env=PAIR=1", "--warmup=off"],
    "worker-private": ["--env=PAIR=1", "--env=RESET=1", "--warmup=/hands-in"],
}
#: A handler keeps what warm-up requests logged: without its reset the application is booted again without them.
ACCUMULATES = ["worker-warmed", "worker-warmed-once"]


def prepare(made: sites.Site) -> None:
    """The application with one more controller, whose libraries it can load."""
    shutil.copy(HERE / "HandsIn.php", made.root / "src/Controller")
    for file, old, new in (
        ("vendor/autoload.php", "['Psr', 'Symfony', 'Twig']", "['Psr', 'Symfony', 'Twig', 'Monolog', 'GuzzleHttp']"),
        (
            "config/routes.php",
            "    $routes->add('home'",
            "    $routes->add('hands_in', '/hands-in')->controller(App\\Controller\\HandsIn::class)->stateless();\n"
            "    $routes->add('arrived', '/arrived')->controller([App\\Controller\\HandsIn::class, 'arrived'])->stateless();\n"
            "    $routes->add('home'",
        ),
        (
            "public/worker.php",
            "$kernel = $boot();\n$finished",
            "$pair = getenv('PAIR') ? stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0) : null;\n"
            "$kernel = $boot();\n$finished",
        ),
        (
            "public/worker.php",
            "        $kernel->boot();\n    }",
            "        $kernel->boot();\n"
            "        getenv('RESET') && App\\Controller\\HandsIn::$it?->reset();\n    }",
        ),
    ):
        path = made.root / file
        text = path.read_text()
        assert text.count(old) == 1, file
        path.write_text(text.replace(old, new))
    sites.build_symfony(made)


@pytest.fixture(scope="module")
def application() -> Iterator[sites.Site]:
    directory = temporary_directory("symfony")
    directory.chmod(0o755)
    try:
        made = sites.unbuilt_symfony(directory)
        prepare(made)
        yield made
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def serve(mode: str, made: sites.Site, out: pathlib.Path) -> Server:
    if mode == "php-fpm":
        return sites.server("reference", sites.Site(made.root, made.docroot, made.var, made.ini, {**made.env, "OUT": str(out)}))
    args = [flag for name, value in {**made.env, "OUT": str(out)}.items() for flag in ("--env", f"{name}={value}")]
    if not any(flag.startswith("--rewind") for flag in MODES[mode]):
        args += ["--rewind", "on", "--rewind-verify", "1"]
    args += MODES[mode]
    worker = made.root / "public/worker.php" if mode.startswith("worker") else None
    if worker is None:
        args += ["--mode", "worker"]
    return Hayate(made.root, worker=worker, workers=1, ini=made.ini, args=args, user=sites.USER)


def collected(out: pathlib.Path, url: str) -> dict[str, Counter]:
    """By library: how often each visitor's arrived."""
    found: dict[str, Counter] = {}
    for name in ("buffered.log", "crossed.log", "promises.log"):
        text = (out / name).read_text() if (out / name).exists() else ""
        found[name] = Counter(line.partition("of ")[2].split()[0] for line in text.splitlines())
    arrived = json.loads(requests.get(url + "/arrived", params={"visitors": ",".join(VISITORS)}, timeout=60).text)
    for name, hits in arrived.items():
        found[name] = Counter(visitor for visitor, hit in hits.items() if hit)
    return found


@pytest.mark.parametrize("mode", MODES)
def test_what_four_visitors_hand_in_arrives_four_times(mode: str, application: sites.Site) -> None:
    out = temporary_directory("handed-in")
    out.chmod(0o777)
    try:
        with serve(mode, application, out) as server:
            # What warm-up requests handed in arrived when they ended; the rest is the visitors'.
            for name in ("buffered.log", "crossed.log", "promises.log"):
                if (out / name).exists():
                    (out / name).write_text("")
            for visitor in VISITORS:
                response = requests.get(server.url + "/hands-in", params={"visitor": visitor}, timeout=60)
                assert (response.status_code, response.text) == (200, "thank you")
            expected = Counter(VISITORS)
            eventually(lambda: collected(out, server.url), dict.fromkeys(collected(out, server.url), expected))
            if isinstance(server, Hayate):
                (app,) = server.status()["apps"]
                assert app["restarts"] == {} and app["fallback"] is None, app
                if mode in ACCUMULATES:
                    # One of those is named that leave something: which is first depends on the versions of the libraries.
                    assert re.search("(FingersCrossedHandler|FileCookieJar), whose destructor would hand it in", app["cold_boot"])
                else:
                    assert app["cold_boot"] is None
                assert app["boot"] == ("private" if "private" in mode else "shared")
    finally:
        shutil.rmtree(out, ignore_errors=True)


def eventually(found: Callable[[], object], expected: object) -> None:
    assert wait_until(lambda: found() == expected, interval=0.05), found()
