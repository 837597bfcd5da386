"""An application that cannot serve any more says so at once, also to those who wait already; a worker that never begins is found out."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import socket
import struct
import time

import pytest
import requests

from lib import site
from lib.births import Births
from lib.process import stop_process, wait_until
from lib.servers import GENERIC_WORKER, Hayate

SPIN = "<?php set_time_limit(0); while (!file_exists(__DIR__ . '/go')) { usleep(5000); clearstatcache(); } echo 'done';"


def app(server: Hayate) -> dict:
    return server.status()["apps"][0]


def get(server: Hayate, path: str) -> requests.Response:
    return requests.get(server.url + path, timeout=60)


def in_time(answer: concurrent.futures.Future) -> requests.Response:
    """Far below queue_timeout."""
    return answer.result(60)


@pytest.mark.parametrize("queued", [3, 100], ids=["few", "more than there are slots"])
def test_requests_in_the_queue_of_an_application_that_boots_no_more_are_refused(tmp_path, queued) -> None:
    root = site.make(tmp_path)
    (root / "until.php").write_text(SPIN)
    boot = tmp_path / "worker.php"
    boot.write_text(
        f"<?php if (file_exists(__DIR__ . '/broken')) {{ throw new Exception('no boot today'); }} require '{GENERIC_WORKER}';"
    )
    config = f'[[app]]\nroot = "{root}"\nworkers = 1\nworker = "{boot}"\nwarmup = []\nqueue_timeout = "10m"\nqueue_limit = 1000\n'
    with Hayate(config=config) as server, concurrent.futures.ThreadPoolExecutor(queued + 1) as pool:
        busy = pool.submit(get, server, "/until.php")
        assert wait_until(lambda: app(server)["workers"][0]["state"] == "serving", 60)
        waiting = [pool.submit(get, server, f"/ok.php?{i}") for i in range(queued)]
        assert wait_until(lambda: app(server)["queue"] == queued, 60), app(server)
        (tmp_path / "broken").touch()
        os.kill(app(server)["zygote"], signal.SIGKILL)
        assert in_time(busy).status_code == 502
        refused = [in_time(answer) for answer in waiting]
        assert {(answer.status_code, answer.headers.get("retry-after") is not None) for answer in refused} == {(503, True)}
        assert "no boot today" in app(server)["unavailable"]
        assert get(server, "/ok.php").status_code == 503
        (tmp_path / "broken").unlink()
        assert wait_until(lambda: app(server)["unavailable"] is None, 60)
        assert get(server, "/ok.php?x").text == "ok x"


def test_who_waits_in_vain_for_a_boot_is_told_so(tmp_path) -> None:
    """It was the queue's fault in what the log said."""
    root = site.make(tmp_path)
    boot = tmp_path / "worker.php"
    boot.write_text(f"<?php while (file_exists(__DIR__ . '/slow')) {{ usleep(20000); clearstatcache(); }} require '{GENERIC_WORKER}';")
    config = f'[[app]]\nroot = "{root}"\nworkers = 1\nworker = "{boot}"\nwarmup = []\nqueue_timeout = "1s"\n'
    with Hayate(config=config) as server:
        (tmp_path / "slow").touch()
        zygote = app(server)["zygote"]
        os.kill(zygote, signal.SIGKILL)
        assert wait_until(lambda: app(server)["zygote"] not in (zygote, None))
        assert get(server, "/ok.php").status_code == 503
        assert server.logged("no worker was free within queue_timeout: none of its workers runs; they are being started")
        (tmp_path / "slow").unlink()
        assert wait_until(lambda: get(server, "/ok.php").status_code == 200)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may trace what is not dumpable")
def test_an_application_whose_workers_die_at_birth_refuses(tmp_path) -> None:
    """The zygote lives, its forks do not: nobody waits for queue_timeout."""
    root = site.make(tmp_path)
    config = f'[[app]]\nroot = "{root}"\nworkers = 1\nqueue_timeout = "10m"\n'
    with Hayate(config=config) as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
        zygote, worker = app(server)["zygote"], app(server)["workers"][0]["pid"]
        stop_process(worker)
        asked = pool.submit(get, server, "/ok.php")
        assert wait_until(lambda: app(server)["queue"] == 1, 60)
        with Births(zygote) as births:
            os.kill(worker, signal.SIGKILL)
            for _ in range(6):
                births.next(signal.SIGKILL)
        assert in_time(asked).status_code == 503
        assert wait_until(lambda: app(server)["unavailable"] is None, 60)
        assert get(server, "/ok.php?x").text == "ok x"


@pytest.mark.parametrize("page", ["leaves before", "leaves after"])
def test_a_page_that_crashes_costs_others_nothing_though_its_client_has_left(tmp_path, page) -> None:
    """The fault: workers that died with a request whose client was gone were held for workers that die at birth."""
    root = site.make(tmp_path)
    says = "" if page == "leaves before" else "echo 'x'; fastcgi_finish_request(); "
    (root / "crash_late.php").write_text(f"<?php {says}usleep(50000); posix_kill(getmypid(), 11);")
    with Hayate(config=f'[[app]]\nroot = "{root}"\nworkers = 2\n') as server:
        for _ in range(12):
            with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
                client.sendall(b"GET /crash_late.php HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                time.sleep(0.02)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            time.sleep(0.05)
            assert get(server, "/ok.php?x").text == "ok x"
        assert wait_until(lambda: app(server)["restarts"].get("signal_11", 0) >= 12), app(server)["restarts"]
        assert "the next one is forked in" not in server.log() and app(server)["unavailable"] is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may trace what is not dumpable")
def test_a_worker_that_is_stopped_before_its_first_sleep_is_replaced(tmp_path) -> None:
    """No request shows it, for another worker suffices."""
    root = site.make(tmp_path)
    with Hayate(config=f'[[app]]\nroot = "{root}"\nworkers = 2\n') as server:
        before = app(server)
        with Births(before["zygote"]) as births:
            os.kill(before["workers"][1]["pid"], signal.SIGKILL)
            stopped = births.next(signal.SIGSTOP)
        assert wait_until(lambda: stopped in {w["pid"] for w in app(server)["workers"]}, 60)
        (shown,) = [w for w in app(server)["workers"] if w["pid"] == stopped]
        assert shown["state"] == "starting" and shown["stopped"] is True
        assert get(server, "/ok.php?x").text == "ok x"
        # Nobody asks for anything meanwhile.
        assert wait_until(lambda: not os.path.exists(f"/proc/{stopped}"), 120, 0.5)
        assert app(server)["restarts"].get("still") == 1
        assert wait_until(lambda: [w["state"] for w in app(server)["workers"]] == ["idle"] * 2, 60)


def test_status_shows_who_is_stopped(tmp_path) -> None:
    root = site.make(tmp_path)
    with Hayate(config=f'[[app]]\nroot = "{root}"\nworkers = 2\n') as server:
        one, other = (worker["pid"] for worker in app(server)["workers"])
        stop_process(other)
        assert [(w["pid"], w["stopped"]) for w in app(server)["workers"]] == [(one, False), (other, True)]
        assert " stopped " in server.run("status").stdout
        os.kill(other, signal.SIGCONT)
        assert wait_until(lambda: [w["stopped"] for w in app(server)["workers"]] == [False, False])
