"""OPcache is filled before the boot, by a process of its own that handles the warm-up requests in classic mode (host/prime.c)."""

from __future__ import annotations

import os
import pathlib
import time

import pytest
import requests

from lib.process import wait_until
from lib.servers import Hayate

#: Says what it finds when it boots: whether OPcache has the library by then, and how often the front controller ran.
WORKER = """<?php
$cached = opcache_is_script_cached(__DIR__.'/lib.php');
require_once __DIR__.'/lib.php';
$seen = json_encode(['cached' => $cached, 'ran' => @file(__DIR__.'/notes/ran') ?: [], 'visitor' => $GLOBALS['visitor'] ?? null]);
while (hayate_handle_request(function () use ($seen) { echo $seen; })) {}
"""
INDEX = """<?php
require_once __DIR__.'/lib.php';
file_put_contents(__DIR__.'/notes/ran', ($_SERVER['HAYATE_WARMUP'] ?? '-').' '.getmypid().' '.$_SERVER['REQUEST_URI']."\\n", FILE_APPEND);
$GLOBALS['visitor'] = 'somebody';
putenv('VISITOR=somebody');
error_log('nobody hears this');
echo 'classic';
"""


@pytest.fixture
def site(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes").chmod(0o777)
    tmp_path.chmod(0o755)
    write(tmp_path, "lib.php", "<?php class Library {}")
    write(tmp_path, "worker.php", WORKER)
    write(tmp_path, "index.php", INDEX)
    return tmp_path


def write(site: pathlib.Path, name: str, text: str) -> None:
    (site / name).write_text(text)
    # OPcache keeps nothing that was written within two seconds (opcache.file_update_protection).
    os.utime(site / name, (time.time() - 60, time.time() - 60))


def start(site: pathlib.Path, *args: str, **more) -> Hayate:
    return Hayate(site, worker=site / "worker.php", workers=1, args=["--front-controller", "index.php", *args], **more)


def seen(server: Hayate) -> dict:
    return requests.get(server.url, timeout=60).json()


@pytest.mark.parametrize("way", ["on", "fork"])
def test_opcache_has_what_warm_up_requests_load_before_the_boot(site: pathlib.Path, way: str) -> None:
    with start(site, "--warmup", "/a", "--rewind", way) as server:
        (app,) = server.status()["apps"]
        boot = seen(server)
        assert boot["cached"] and boot["visitor"] is None, boot
        ran = [line.split() for line in boot["ran"]]
        assert [(warmup, target) for warmup, _, target in ran] == [("1", "/a")] * 2
        assert str(app["zygote"]) not in {pid for _, pid, _ in ran}
        assert "nobody hears this" not in server.log()
        assert server.run("reload").returncode == 0
        assert seen(server)["cached"]


@pytest.mark.parametrize("args", [["--warmup", "off"], ["--rewind", "off", "--warmup", "/a"], ["--dev", "--warmup", "/a"]])
def test_nothing_runs_before_the_boot_where_nobody_gains_by_it(site: pathlib.Path, args: list[str]) -> None:
    with start(site, *args) as server:
        boot = seen(server)
        assert (boot["cached"], boot["ran"]) == (False, []), boot


def test_the_worker_script_itself_is_not_run_for_it(site: pathlib.Path) -> None:
    (site / "index.php").unlink()
    with Hayate(site, worker=site / "worker.php", workers=1, args=["--warmup", "/"]) as server:
        assert seen(server) == {"cached": False, "ran": [], "visitor": None}


FAILS = {
    "hangs": "if (!is_file(__DIR__.'/notes/pid')) { file_put_contents(__DIR__.'/notes/pid', getmypid()); while (true) { sleep(60); } }",
    "dies": "posix_kill(getmypid(), 9);",
    "throws": "throw new Exception('nobody hears this');",
    "exits": "exit(3);",
    "resets": "opcache_reset();",
    "is too large": "ini_set('memory_limit', '64M'); $a = str_repeat('x', 100 << 20);",
    "is broken": "this is no PHP",
}


@pytest.mark.parametrize("how", FAILS)
def test_what_fails_there_costs_nothing_but_time(site: pathlib.Path, how: str) -> None:
    write(site, "index.php", f"<?php require_once __DIR__.'/lib.php'; {FAILS[how]}")
    with start(site, "--warmup", "/a") as server:
        assert seen(server)["visitor"] is None
        (app,) = server.status()["apps"]
        assert (app["fallback"], app["cold_boot"], app["restarts"]) == (None, None, {}), app
        assert "nobody hears this" not in server.log() and "Fatal" not in server.log(), server.log()
        if how == "hangs":
            pid = int((site / "notes/pid").read_text())
            assert wait_until(lambda: not pathlib.Path(f"/proc/{pid}").exists())

