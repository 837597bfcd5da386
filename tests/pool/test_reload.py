"""Reloads that are asked for while another one is under way: one that hangs is not waited for, and none is put off for ever."""

from __future__ import annotations

import json
import pathlib
import threading
import time

import requests

from lib.process import wait_until
from lib.servers import Hayate

WORKER = """<?php
$release = trim(file_get_contents(__DIR__ . '/release'));
if ($release === 'hangs') { while (true) { usleep(10000); } }
file_put_contents(__DIR__ . '/boots', "$release\\n", FILE_APPEND);
if (file_exists(__DIR__ . '/slow')) { sleep(2); }
while (hayate_handle_request(function () use ($release) { echo $release; })) { }
"""


def serve(directory: pathlib.Path) -> Hayate:
    (directory / "worker.php").write_text(WORKER)
    (directory / "index.php").write_text("<?php echo 'classic';")
    (directory / "release").write_text("1")
    (directory / "boots").write_text("")
    (directory / "boots").chmod(0o666)
    config = f"""
        [[app]]
        root = "{directory}"
        worker = "worker.php"
        warmup = []
        workers = 1
        boot_timeout = "120s"
    """
    return Hayate(config=config)


def test_who_asks_more_often_than_the_application_boots_gets_a_reload_all_the_same(hayate_command, tmp_path) -> None:
    """Each took the place of the one before: nothing was ever reloaded as long as somebody asked."""
    with serve(tmp_path) as server:
        assert requests.get(server.url, timeout=60).text == "1"
        (tmp_path / "slow").touch()
        (tmp_path / "release").write_text("2")
        answers = []

        def ask() -> None:
            answers.append(server.reload(timeout=120).returncode)

        asking, served = [], "1"
        while served != "2" and len(asking) < 200:
            asking.append(threading.Thread(target=ask))
            asking[-1].start()
            served = requests.get(server.url, timeout=60).text
            time.sleep(0.5)
        assert served == "2", "nothing was reloaded while it was asked for"
        for thread in asking:
            thread.join(120)
        assert answers == [0] * len(asking)
        # The first one gives way, the second one does not, and those that are asked for meanwhile are one.
        boots = (tmp_path / "boots").read_text().split()
        assert boots[0] == "1" and len(boots) <= 8, boots


def test_a_reload_that_hangs_gives_way_to_the_next_one(hayate_command, tmp_path) -> None:
    with serve(tmp_path) as server:
        (tmp_path / "release").write_text("hangs")
        first = threading.Thread(target=server.reload, args=(120,))
        first.start()
        assert wait_until(lambda: server.log().count("reloading") == 1)
        # It is said what is waited for.
        assert wait_until(lambda: f"the reload waits for '{tmp_path.name}'" in server.log())
        (tmp_path / "release").write_text("3")
        assert server.reload(timeout=60).returncode == 0
        assert requests.get(server.url, timeout=60).text == "3"
        first.join(60)
        assert not first.is_alive()


def counted(server: Hayate) -> dict[str, float]:
    """The counters of workers and their rewinds, by their names in the metrics."""
    names = ("hayate_worker_restarts_total{", "hayate_rewind", "hayate_slow_requests_total")
    lines = [line.rsplit(" ", 1) for line in server.metrics().splitlines() if line.startswith(names) and "_total" in line]
    return {name: float(value) for name, value in lines}


def test_counters_do_not_fall_while_old_requests_finish(hayate_command, tmp_path) -> None:
    """What the old processes had counted was left out until the last of their requests was done."""
    work = "usleep((int) ($_GET['ms'] ?? 0) * 1000);"
    (tmp_path / "worker.php").write_text(f"<?php while (hayate_handle_request(function () {{ {work} echo 'fine'; }})) {{ }}")
    config = f"""
        [[app]]
        root = "{tmp_path}"
        worker = "worker.php"
        warmup = []
        workers = 2
        max_requests = 5
        slow_request = "200ms"
    """
    with Hayate(config=config) as server:
        for i in range(12):
            assert requests.get(f"{server.url}/?ms={300 if i == 0 else 0}", timeout=60).text == "fine"
        restarts = f'hayate_worker_restarts_total{{app="{tmp_path.name}",cause="max_requests"}}'
        assert wait_until(lambda: counted(server)[restarts] >= 1)
        long = threading.Thread(target=requests.get, args=(f"{server.url}/?ms=6000",), kwargs={"timeout": 60})
        long.start()
        assert wait_until(lambda: any(worker["state"] == "serving" for worker in server.status()["apps"][0]["workers"]))
        before, of_status = counted(server), server.status()["apps"][0]["restarts"]
        assert before[f'hayate_slow_requests_total{{app="{tmp_path.name}"}}'] == 1
        assert server.reload().returncode == 0
        assert server.status()["draining"] == 1
        during = counted(server)
        assert {name: (value, during.get(name)) for name, value in before.items() if during.get(name, 0) < value} == {}
        assert server.status()["apps"][0]["restarts"]["max_requests"] >= of_status["max_requests"]
        long.join(60)
        assert wait_until(lambda: server.status()["draining"] == 0)
        after = counted(server)
        assert {name: (value, after.get(name)) for name, value in during.items() if after.get(name, 0) < value} == {}
        # Nothing is counted twice: the long one was slow, and nobody else.
        assert after[f'hayate_slow_requests_total{{app="{tmp_path.name}"}}'] == 2
        assert after[restarts] <= before[restarts] + 1


def test_a_reload_says_what_a_restart_alone_changes(hayate_command, tmp_path) -> None:
    with serve(tmp_path) as server:
        before = server._config.read_text()
        server._config.write_text('log_level = "debug"\nfront_threads = 3\n' + before)
        done = server.reload()
        assert (done.returncode, done.stdout) == (0, "reloaded, but for what takes effect with a restart only: front_threads, log_level\n")
        assert json.loads(server.run("status", "--json").stdout)["last_reload"]["needs_restart"] == ["front_threads", "log_level"]
        server._config.write_text(before)
        assert server.reload().stdout == "reloaded\n"
