"""Extensions beyond those of the matrix: that they rewind, and what becomes of an application with one that must not.

The first part makes an extension of its own (extensions/probe.c), under the name of one that is known to be unsafe and
under one that is not, with and without a thread.

The second part runs extensions that are installed, each doing what it is for (extensions/cases.php), with all memory
compared after each request. Of Debian's there are many, so CI has a few; HAYATE_EXTENSIONS names a directory with the
.so files of others.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest
import requests

from lib import php_extensions
from lib.process import Server, ServerError, accepts, free_port
from lib.servers import PHP_VERSION, Hayate, hayate_binary

from .matrix_site import Pong

HERE = pathlib.Path(__file__).parent / "extensions"
PROBE_WORKER = """<?php
function answer() {
    static $calls = 0;
    echo json_encode(['calls' => ++$calls, 'alive' => alive(), 'mode' => getenv('IN_WORKER') ? 'worker' : 'classic']);
}
if (basename(__FILE__) === 'worker.php') {
    putenv('IN_WORKER=1');
    while (hayate_handle_request('answer')) {
    }
} else {
    answer();
}
"""


def build(directory: pathlib.Path, name: str, thread_at: str) -> pathlib.Path:
    """Compiles extensions/probe.c."""
    library = directory / f"{name}-{thread_at}.so"
    config = [f"php-config{PHP_VERSION}", "--includes"]
    includes = subprocess.run(config, check=True, capture_output=True, text=True).stdout.replace("-I", "-isystem ")
    macros = [f"-DNAME={name}", f"-DTHREAD_AT={thread_at}"]
    command = ["cc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", *macros, *includes.split()]
    subprocess.run([*command, "-o", library, HERE / "probe.c"], check=True)
    return library


class Probe(Hayate):
    """An application with that extension. `classic`: whether it has a front controller, for classic mode."""

    def __init__(self, directory: pathlib.Path, name: str, thread_at: str, classic: bool = True) -> None:
        site = directory / f"{name}-{thread_at}-site"
        site.mkdir(exist_ok=True)
        (site / "worker.php").write_text(PROBE_WORKER)
        if classic:
            (site / "index.php").write_text(PROBE_WORKER)
        self.options = ["--ini", f"extension={build(directory, name, thread_at)}"]
        super().__init__(site, worker=site / "worker.php", workers=1, args=[*self.options, "--rewind-verify", "1"])

    def ask(self, command: str) -> str:
        """What `hayate check` or `hayate explain` says of it."""
        argv = [hayate_binary(), command, self.root, "--worker", self.root / "worker.php", *self.options]
        return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout

    def answers(self) -> list[dict]:
        """Of three requests."""
        return [requests.get(self.url, timeout=60).json() for _ in range(3)]

    def app(self) -> dict:
        """What `hayate status` says of it."""
        (app,) = self.status()["apps"]
        return app


def said_once(log: str, what: str) -> bool:
    """Whether exactly one line of the log is about it."""
    return sum(what in line for line in log.splitlines()) == 1


def test_a_known_one_is_not_rewound_but_forked(tmp_path: pathlib.Path) -> None:
    with Probe(tmp_path, "grpc", "never") as site:
        # Three warm-up requests come before.
        assert site.answers() == 3 * [{"calls": 4, "alive": False, "mode": "worker"}]
        app = site.app()
        assert app["fallback"]["to"] == "fork" and app["rewind"]["tracking"] == "fork" and app["restarts"] == {}
        assert "the extension grpc keeps" in app["fallback"]["why"] and "To avoid it" in app["fallback"]["why"]
        assert site.reload().returncode == 0
        assert site.app()["fallback"]["to"] == "fork"
        assert site.logged("the extension grpc keeps", 2)
        log = site.log()
        assert len(re.findall("the extension grpc keeps", log)) == 2, "once for each boot\n" + log
        assert "each request runs in a fork" in (check := site.ask("check")) and "the extension grpc keeps" in check
        assert "the extension grpc keeps" in (report := site.ask("explain")) and "rewind      fork" in report


def test_who_asks_for_forks_hears_nothing_of_it(tmp_path: pathlib.Path) -> None:
    site = Probe(tmp_path, "grpc", "never")
    site._args += ["--rewind", "fork"]
    with site:
        assert [answer["calls"] for answer in site.answers()] == [4, 4, 4]
        assert site.app()["fallback"] is None and "the extension" not in site.log()


def test_one_that_nobody_knows_is_rewound(tmp_path: pathlib.Path) -> None:
    with Probe(tmp_path, "other", "never") as site:
        assert site.answers() == 3 * [{"calls": 4, "alive": False, "mode": "worker"}]
        app = site.app()
        assert app["fallback"] is None and app["rewind"]["rewinds"] >= 2 and app["restarts"] == {}
        assert "the extension grpc" not in site.ask("check")


@pytest.mark.parametrize("name", ["grpc", "other"])
def test_a_thread_of_the_boot_leaves_classic_mode(name: str, tmp_path: pathlib.Path) -> None:
    """Where each process starts its own, as under php-fpm."""
    with Probe(tmp_path, name, "request") as site:
        assert site.answers() == 3 * [{"calls": 1, "alive": True, "mode": "classic"}]
        assert site.app()["fallback"]["to"] == "classic" and site.app()["mode"] == "classic"
        assert site.logged("the boot started a thread")
        assert "the boot started a thread" in site.ask("explain") or name == "grpc"


def test_a_thread_of_the_boot_without_a_front_controller(tmp_path: pathlib.Path) -> None:
    """There is nothing that it could fall back to: it says so at once instead of trying for ever."""
    with pytest.raises(ServerError, match=r"(?s)did not boot: the boot started a thread.*To avoid it"):
        with Probe(tmp_path, "other", "request", classic=False):
            pass


def test_a_reload_finds_a_thread_of_the_boot(tmp_path: pathlib.Path) -> None:
    """The same when it is a reload that brings the thread: classic mode, without a request that fails."""
    site = Probe(tmp_path, "other", "request")
    worker = site.root / "worker.php"
    worker.write_text(PROBE_WORKER.replace("basename(__FILE__)", "'worker.php'"))
    config = f'[[app]]\nroot = "{site.root}"\nworker = "worker.php"\nworkers = 1\n'
    library = build(tmp_path, "other", "never")
    file = tmp_path / "hayate.toml"
    file.write_text(f'{config}[app.ini]\nextension = "{library}"\n')
    with Hayate(config=file) as hayate:
        assert requests.get(hayate.url, timeout=60).json()["mode"] == "worker"
        file.write_text(file.read_text().replace("never", "request"))
        assert hayate.reload().returncode == 0
        assert requests.get(hayate.url, timeout=60).json() == {"calls": 1, "alive": True, "mode": "classic"}
        (app,) = hayate.status()["apps"]
        assert app["fallback"]["to"] == "classic"


def test_a_thread_that_php_starts_with_is_not_lost(tmp_path: pathlib.Path) -> None:
    """A fork has no threads, so workers do not come from a process that has run PHP code beside one."""
    with Probe(tmp_path, "other", "startup") as site:
        assert [answer["calls"] for answer in site.answers()] == [4, 4, 4]
        assert site.app()["boot"] == "private" and site.app()["fallback"] is None
        assert site.logged("an extension started a thread with PHP")
        assert said_once(site.log(), "an extension started a thread with PHP")


#: Cases in which workers are replaced, and as what that is counted.
REPLACED = {
    # Its timers share a thread that never ends.
    "excimer": "rewind_threads",
    # OpenMP's threads wait for the next image. OMP_NUM_THREADS=1 keeps them away: see docs/rewind.md.
    "gmagick": "rewind_threads",
    "memcached_connected_at_boot": "rewind_connection",
    "pdo_firebird": "rewind_threads",
    "zmq_boot": "rewind_threads",
}
CASES = dict(re.findall(r"(?m)^    '(\w+)' => \[\[([^]]*)\]", (HERE / "cases.php").read_text()))
#: What scripts/setup installs.
IN_CI = {"gmp", "igbinary", "memcached", "memcached_made_at_boot", "memcached_connected_at_boot", "mongodb", "msgpack", "uuid"}


class Daemon(Server):
    """memcached or gearmand, on a free port."""

    def __init__(self, name: str, *command: str) -> None:
        self.name = name
        super().__init__()
        self._command = command

    def command(self) -> list[str]:
        self.port = free_port()
        return [*self._command, "-p", str(self.port)]

    def ready(self) -> bool:
        return accepts(self.port)


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, object]]:
    """What the cases need to know."""
    user = ["-u", "nobody"] if os.geteuid() == 0 else []
    with Pong() as pong, Daemon("memcached", "/usr/bin/memcached", *user, "-l", "127.0.0.1", "-U", "0") as memcached:
        known: dict[str, object] = {"PONG": pong, "MEMCACHED": memcached.port}
        if shutil.which("gearmand"):
            with Daemon("gearmand", "gearmand", "-L", "127.0.0.1", "-l", "stderr") as gearmand:
                yield known | {"GEARMAND": gearmand.port}
        else:
            yield known


@pytest.mark.parametrize("case", [case for case in CASES if php_extensions.ELSEWHERE or case in IN_CI])
def test_case(case: str, environment: dict[str, object], tmp_path: pathlib.Path) -> None:
    """Twenty requests, the same answer, the same memory, the same process."""
    env = {**environment, "EXT_CASE": case, "EXT_TMP": tmp_path}
    names = re.findall(r"'([^']+)'", CASES[case])
    missing = [name for name in names if not php_extensions.is_there(name)]
    if missing:
        assert case not in IN_CI or not php_extensions.of_the_release(), f"{missing} are missing: scripts/setup --test installs them"
        pytest.skip(f"{missing} are not installed")
    if settings := php_extensions.settings(names):
        (tmp_path / "extensions.ini").write_text(settings)
        # After those of the distribution, which others build upon.
        env["PHP_INI_SCAN_DIR"] = f":{tmp_path}"
    args = ["--rewind-verify", "1", "--warmup", "off"]
    for key, value in env.items():
        args += ["--env", f"{key}={value}"]
    with Hayate(HERE, worker=HERE / "worker.php", workers=1, args=args) as hayate:
        answers = [requests.get(hayate.url, timeout=60) for _ in range(20)]
        (app,) = hayate.status()["apps"]
        if case in REPLACED:
            assert hayate.logged(REPLACED[case])
        log = hayate.log()
    said = {(answer.status_code, answer.text) for answer in answers}
    assert len(said) == 1 and answers[0].status_code == 200, said
    if case in REPLACED:
        return
    assert app["restarts"] == {} and app["fallback"] is None, log[-4000:]
    assert len({answer.headers["x-pid"] for answer in answers}) == 1
    assert len({answer.headers["x-memory"] for answer in answers}) == 1
