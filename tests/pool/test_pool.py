"""The pool: growing and shrinking, limits, deaths, reloads, the end. All provoked for real, in each mode."""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest
import requests

from lib import site
from lib.process import Server, temporary_directory
from lib.servers import GENERIC_WORKER, Hayate, NginxFpm, free_port, hayate_binary

MODES = ["classic", "worker"]


@pytest.fixture(params=MODES)
def start(request, hayate_command, tmp_path):
    """start(workers=…, app="lines of [[app]]", top="lines before") → a server on the site; worker mode rewinds."""
    root = site.make(tmp_path)
    servers: list[Hayate] = []

    def run(*, workers: str = "1", app: str = "", top: str = "", **more) -> Hayate:
        worker = f'worker = "{GENERIC_WORKER}"\n' if request.param == "worker" else ""
        config = f'{top}\n[[app]]\nname = "site"\nroot = "{root}"\nworkers = "{workers}"\n{worker}{app}\n'
        server = Hayate(config=config, **more)
        servers.append(server.start())
        return server

    yield run
    for server in servers:
        server.stop()


def get(server: Hayate, path: str, **more) -> requests.Response:
    return requests.get(server.url + path, timeout=more.pop("timeout", 60), **more)


def workers(server: Hayate) -> list[dict]:
    return server.status()["apps"][0]["workers"]


def alive(pid: int) -> bool:
    """Whether a process runs; a dead one that nobody has reaped yet does not."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(condition, seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def test_grows_when_requests_wait_and_shrinks_when_idle(start) -> None:
    server = start(workers="1-4", app='idle_timeout = "1s"')
    assert len(workers(server)) == 1
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        pids = {r.text for r in pool.map(lambda _: get(server, "/sleep.php?ms=400"), range(12))}
    assert 2 <= len(pids) <= 4
    assert until(lambda: len(workers(server)) == 1), workers(server)
    assert get(server, "/ok.php?x").text == "ok x"


def test_max_requests(start) -> None:
    server = start(app="max_requests = 5")
    pids = [get(server, "/pid.php").text for _ in range(20)]
    assert len(set(pids)) == 4, pids


def test_max_memory(hayate_command, tmp_path) -> None:
    root = site.make(tmp_path)
    limit = ["--max-memory", "60M"]
    with Hayate(root, worker=GENERIC_WORKER, workers=1, args=[*limit, "--rewind", "off"]) as server:
        before = get(server, "/pid.php").text
        get(server, "/leak.php")
        assert until(lambda: get(server, "/pid.php").text != before)
        assert server.status()["apps"][0]["restarts"] == {"max_memory": 1}
    # In classic mode and with rewind the memory goes back with the request.
    for more in ({}, {"worker": GENERIC_WORKER}):
        with Hayate(root, workers=1, args=limit, **more) as server:
            before = get(server, "/pid.php").text
            for _ in range(3):
                get(server, "/leak.php")
            assert get(server, "/pid.php").text == before
            assert server.status()["apps"][0]["restarts"] == {}


#: Holds 80 MB from its boot on, each worker by itself where PRIVATE is set.
LARGE = """<?php
$pair = getenv('PRIVATE') ? stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0) : null;
ini_set('memory_limit', -1);
$large = [];
for ($n = 0; $n < 80; $n++) {
    $large[] = str_repeat('x', (1 << 20) - 4096);
}
while (hayate_handle_request(function () { echo getmypid(); })) {
}
"""
MB = 1 << 20


@pytest.mark.parametrize("rewind", ["on", "fork", "off"])
def test_what_workers_share_of_a_boot_counts_for_none_of_them(hayate_command, tmp_path, rewind: str) -> None:
    (tmp_path / "worker.php").write_text(LARGE)
    args = ["--max-memory", "60M", "--rewind", rewind, "--warmup", "off"]
    with Hayate(tmp_path, worker=tmp_path / "worker.php", workers=3, args=args) as server:
        for _ in range(300):
            get(server, "/")
        (app,) = server.status()["apps"]
        assert app["restarts"] == {} and len(app["workers"]) == 3
        assert all(worker["memory"] < 30 * MB for worker in app["workers"]), app["workers"]
        assert 80 * MB < app["memory"] < 150 * MB, "once, and what each has of its own"
        scraped = re.search(r"(?m)^hayate_memory_bytes\{.*\} (\d+)$", server.metrics())
        assert abs(int(scraped[1]) - app["memory"]) < 20 * MB


def test_a_boot_above_max_memory_serves_and_is_told(hayate_command, tmp_path) -> None:
    """Where nothing is shared, each request costs a worker; it was 503 for all of them, and thousands of workers."""
    (tmp_path / "worker.php").write_text(LARGE)
    args = ["--max-memory", "60M", "--warmup", "off", "--env", "PRIVATE=1"]
    with Hayate(tmp_path, worker=tmp_path / "worker.php", workers=1, args=args) as server:
        pids = {get(server, "/").text for _ in range(4)}
        assert len(pids) == 4 and all(pid.isdigit() for pid in pids), pids
        assert server.logged("held more than max_memory (62914560 bytes) after its first request")
        assert 3 <= server.status()["apps"][0]["restarts"]["max_memory"] <= 4


def test_request_timeout_answers_504_and_replaces_the_worker(start) -> None:
    server = start(app='request_timeout = "3s"')
    before = get(server, "/pid.php").text
    started = time.monotonic()
    assert get(server, "/spin.php").status_code == 504
    assert time.monotonic() - started > 2.5
    assert get(server, "/pid.php").text != before
    assert server.status()["apps"][0]["restarts"].get("request_timeout") == 1


def test_queue_limit_and_timeout_answer_503(start) -> None:
    server = start(app='queue_limit = 2\nqueue_timeout = "1s"\n')
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: get(server, "/sleep.php?ms=2500"), range(6)))
    codes = sorted(a.status_code for a in answers)
    assert codes[0] == 200 and codes[-1] == 503, codes
    assert all("Retry-After" in a.headers for a in answers if a.status_code == 503)
    assert get(server, "/ok.php?x").status_code == 200


@pytest.fixture(scope="module")
def counted(hayate_command) -> Iterator[tuple[pathlib.Path, list[Server]]]:
    """A directory in which runs are counted; nginx with php-fpm, and Hayate in both modes, on one site."""
    directory = temporary_directory("once")
    root = site.make(directory)
    directory.chmod(0o777)
    with NginxFpm(root) as fpm, Hayate(root, workers=2) as classic:
        with Hayate(root, worker=GENERIC_WORKER, workers=2) as worker:
            yield directory, [fpm, classic, worker]
    shutil.rmtree(directory)


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "POST"])
def test_b14_a_request_that_a_worker_had_taken_runs_once_as_behind_nginx(counted, method) -> None:
    directory, servers = counted
    for i, server in enumerate(servers):
        runs = directory / f"{method}-{i}"
        body = b"x" * 20_000 if method in ("PUT", "POST") else None
        answer = requests.request(method, f"{server.url}/crash_counted.php?file={runs}", data=body, timeout=60)
        assert answer.status_code == 502
        # A second run would be in hand, or waiting, by now. So nothing is, and whoever could have it has done something else since.
        if isinstance(server, Hayate):
            assert until(lambda server=server: server.status()["apps"][0]["queue"] == 0)
            assert until(lambda server=server: [worker["state"] for worker in workers(server)] == ["idle"] * 2)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            assert all(pool.map(lambda _, server=server: get(server, "/sleep.php?ms=50").status_code == 200, range(4)))
        assert runs.read_text() == "x", server.name


def test_b14_a_request_that_no_worker_had_taken_waits_for_the_next_one(start, tmp_path) -> None:
    """One worker, which dies with the first request; the second one waits meanwhile, whatever its method."""
    server = start()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        first = pool.submit(get, server, "/sleep_and_crash.php?ms=500")
        wait = until(lambda: workers(server)[0]["state"] == "serving")
        others = [pool.submit(requests.post, f"{server.url}/ok.php?{i}", data="x", timeout=60) for i in range(3)]
        assert wait and first.result().status_code == 502
        assert [other.result().text for other in others] == ["ok 0", "ok 1", "ok 2"]


def test_a_dead_worker_costs_its_own_request(start, tmp_path) -> None:
    server = start(workers="2", app='retry = "idempotent"\n')
    assert get(server, f"/crash_once.php?file={tmp_path}/a").text == "second"
    assert requests.post(f"{server.url}/crash_once.php?file={tmp_path}/b", data="x", timeout=60).status_code == 502
    assert get(server, "/crash.php").status_code == 502
    with pytest.raises(requests.RequestException):
        assert len(get(server, "/crash.php?say=1").content) > 10**9
    assert get(server, "/ok.php?x").text == "ok x"


@pytest.mark.parametrize("retry", ["off", "idempotent"])
def test_kill_9_under_load(start, retry) -> None:
    server = start(workers="3", app=f'retry = "{retry}"\n')
    stop = threading.Event()
    statuses: list[int] = []

    def load() -> None:
        with requests.Session() as session:
            while not stop.is_set():
                statuses.append(session.get(server.url + "/sleep.php?ms=2", timeout=60).status_code)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        loads = [pool.submit(load) for _ in range(4)]
        kills = 0
        for _ in range(25):
            time.sleep(0.1)
            # What was submitted again is answered before the next death, however slow the machine is.
            answered = len(statuses)
            assert until(lambda answered=answered: len(statuses) >= answered + 12)
            for worker in workers(server)[:1]:
                try:
                    os.kill(worker["pid"], signal.SIGKILL)
                    kills += 1
                except ProcessLookupError:
                    pass
        stop.set()
        for one in loads:
            one.result()
    good, bad = statuses.count(200), len(statuses) - statuses.count(200)
    # A death costs the request that the worker had taken; where that is submitted again, only one that meets two deaths.
    assert good > 100 and bad <= (kills if retry == "off" else kills // 4), (good, bad, kills)
    assert until(lambda: len(workers(server)) == 3)


def test_a_dead_zygote_is_replaced(start) -> None:
    server = start(workers="2")
    zygote = server.status()["apps"][0]["zygote"]
    os.kill(zygote, signal.SIGKILL)
    assert until(lambda: server.status()["apps"][0]["zygote"] not in (zygote, None, 0))
    assert until(lambda: requests.get(server.url + "/ok.php?x", timeout=60).text == "ok x")


def test_the_masters_death_leaves_no_orphans(start) -> None:
    server = start(workers="2")
    pids = [server.front] + [w["pid"] for w in workers(server)] + [server.status()["apps"][0]["zygote"]]
    os.kill(server.pid, signal.SIGKILL)
    server.process.wait(60)
    assert until(lambda: not any(alive(pid) for pid in pids)), pids


def test_sigterm_drains(start, tmp_path) -> None:
    server = start(workers="2", top='drain_timeout = "10m"')
    go = tmp_path / "go"
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        slow = pool.submit(get, server, f"/hold.php?go={go}", timeout=120)
        assert until(lambda: server.status()["apps"][0]["active"] == 1)
        os.kill(server.pid, signal.SIGTERM)
        assert until(lambda: server.status()["state"] == "draining")
        new = pool.submit(get, server, "/ok.php", timeout=120)
        go.touch()
        assert (slow.result().status_code, slow.result().text) == (200, "held")
        with pytest.raises(requests.ConnectionError):
            new.result()
    assert server.process.wait(60) == 0


def test_a_second_sigterm_stops_at_once(start, tmp_path) -> None:
    server = start(workers="1", top='drain_timeout = "10m"')
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        slow = pool.submit(get, server, f"/hold.php?go={tmp_path}/never", timeout=120)
        assert until(lambda: server.status()["apps"][0]["active"] == 1)
        os.kill(server.pid, signal.SIGTERM)
        # The first one was heard: of two that come together the kernel hands over one.
        assert until(lambda: server.status()["state"] == "draining")
        os.kill(server.pid, signal.SIGTERM)
        server.process.wait(60)
        with pytest.raises(requests.RequestException):
            slow.result().raise_for_status()


def test_reload_under_load_loses_nothing(start) -> None:
    server = start(workers="2")
    stop = threading.Event()
    failed: list[str] = []
    counts = []

    def load() -> None:
        n = 0
        with requests.Session() as session:
            while not stop.is_set():
                try:
                    answer = session.get(server.url + "/sleep.php?ms=3", timeout=60)
                    if answer.status_code != 200:
                        failed.append(f"{answer.status_code}")
                except requests.RequestException as error:
                    failed.append(repr(error))
                n += 1
        counts.append(n)

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        done = server.reload()
        assert done.returncode == 0, done.stderr
    stop.set()
    for thread in threads:
        thread.join()
    assert failed == [] and sum(counts) > 100


def test_sighup_reloads_the_configuration(start) -> None:
    server = start(workers="1")
    before = get(server, "/pid.php").text
    os.kill(server.pid, signal.SIGHUP)
    assert until(lambda: get(server, "/pid.php").text != before)


def test_a_symlinked_release_is_resolved_afresh(hayate_command, tmp_path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.php").write_text(f"<?php echo '{name} ', __DIR__;")
    link = tmp_path / "current"
    link.symlink_to("one")
    with Hayate(config=f'[[app]]\nroot = "{link}"\n', workers=1) as server:
        assert get(server, "/").text.startswith("one ")
        link.unlink()
        link.symlink_to("two")
        assert get(server, "/").text.startswith("one ")
        assert server.reload().returncode == 0
        assert get(server, "/").text.startswith("two ")


def test_a_broken_deploy_leaves_the_old_generation_serving(hayate_command, tmp_path) -> None:
    worker = tmp_path / "worker.php"
    good = "<?php while (hayate_handle_request(function () { echo 'good'; })) {}"
    worker.write_text(good)
    (tmp_path / "index.php").write_text("")
    with Hayate(config=f'[[app]]\nroot = "{tmp_path}"\nworker = "worker.php"\n', workers=1) as server:
        assert get(server, "/").text == "good"
        worker.write_text("<?php throw new RuntimeException('the new release is broken');")
        done = server.reload()
        assert done.returncode != 0 and "the new release is broken" in done.stderr + done.stdout
        assert get(server, "/").text == "good"
        assert server.logged("the new release is broken")
        config = server._config
        text = config.read_text()
        config.write_text(text + "nonsense = 1\n")
        done = server.reload()
        assert done.returncode != 0 and "nonsense" in done.stderr + done.stdout
        assert get(server, "/").text == "good"
        config.write_text(text)
        worker.write_text(good.replace("good", "better"))
        assert server.reload().returncode == 0
        assert get(server, "/").text == "better"


def test_a_boot_that_fails_is_told_and_retried(hayate_command, tmp_path) -> None:
    worker = tmp_path / "worker.php"
    worker.write_text("<?php throw new RuntimeException('no database yet');")
    (tmp_path / "index.php").write_text("")
    with Hayate(tmp_path, worker=worker, workers=1, args=["--dev"]) as server:
        page = get(server, "/")
        assert page.status_code == 503 and "Retry-After" in page.headers and "no database yet" in page.text
        assert server.logged("no database yet")
        assert "no database yet" in str(server.status())
        worker.write_text("<?php while (hayate_handle_request(function () { echo 'up'; })) {}")
        assert until(lambda: get(server, "/").text == "up")
    worker.write_text("<?php throw new RuntimeException('no database yet');")
    listen = f"127.0.0.1:{free_port()}"
    command = [str(hayate_binary()), "serve", str(tmp_path), "--worker", str(worker), "--listen", listen]
    done = subprocess.run([*command, "--control", f"{tmp_path}/c.sock"], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "no database yet" in done.stderr


def test_ten_thousand_idle_connections(hayate_command, tmp_path) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 14000:  # of which connections get three quarters
        pytest.skip(f"this machine allows {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 20000), hard))
    root = site.make(tmp_path)
    connections = []
    try:
        with Hayate(config=f'[limits]\nconnections = 20000\n[[app]]\nroot = "{root}"\n', workers=1) as server:
            for i in range(10000):
                s = socket.socket()
                # Several source addresses: one has too few ports left on a busy machine.
                s.bind((f"127.0.0.{2 + i % 5}", 0))
                s.connect(("127.0.0.1", server.port))
                connections.append(s)
            for i in range(20):
                assert get(server, f"/ok.php?{i}").text == f"ok {i}"
            rss = next(
                int(line.split()[1])
                for line in pathlib.Path(f"/proc/{server.front}/status").read_text().splitlines()
                if line.startswith("VmRSS")
            )
            assert rss < 400_000, f"{rss} KiB for 10,000 idle connections"
            for s in connections:
                s.close()
            connections.clear()
            assert get(server, "/ok.php?after").text == "ok after"
    finally:
        for s in connections:
            s.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_is_seen_from_outside(start, tmp_path) -> None:
    log = tmp_path / "access.log"
    server = start(workers="1", access_log=str(log))
    get(server, "/ok.php?x", headers={"User-Agent": "an-agent"})
    get(server, "/error.php")
    get(server, "/nowhere")

    def control(path: str) -> tuple[int, str]:
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(str(server.control))
            s.sendall(f"GET {path} HTTP/1.1\r\nHost: hayate\r\nConnection: close\r\n\r\n".encode())
            data = b""
            while chunk := s.recv(65536):
                data += chunk
        head, _, body = data.partition(b"\r\n\r\n")
        return int(head.split(b" ")[1]), body.decode()

    assert control("/healthz")[0] == 200 and control("/readyz")[0] == 200
    status, metrics = control("/metrics")
    assert status == 200
    for name in ("hayate_requests_total", "hayate_request_duration_seconds_bucket", "hayate_queue_wait_seconds_bucket"):
        assert name in metrics, metrics[:3000]
    for name in ("hayate_workers", "hayate_worker_restarts_total", "hayate_memory_bytes"):
        assert name in metrics, metrics[:3000]
    assert until(lambda: log.exists() and len(log.read_text().splitlines()) >= 3)
    first = log.read_text().splitlines()[0]
    assert '"GET /ok.php?x HTTP/1.1" 200 4 ' in first and "an-agent" in first
    assert server.logged("a line of mine")
    said = server.log()
    assert "site" in next(line for line in said.splitlines() if "a line of mine" in line)


def test_processes_bear_the_hosts_name(start) -> None:
    server = start(workers="1")
    assert get(server, "/ok.php").status_code == 200
    names = [pathlib.Path(f"/proc/{worker['pid']}/comm").read_text() for worker in workers(server)]
    assert all(name.startswith("hayate-php") for name in names), names
