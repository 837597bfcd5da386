"""The master: what holds the sockets outlives what speaks HTTP, and nothing outlives the master."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest
import requests

from lib import site
from lib.process import descendants, still_running, stop_process, temporary_directory, wait_until
from lib.servers import GENERIC_WORKER, Hayate

ROOT = os.geteuid() == 0


@pytest.fixture(params=["classic", "worker"])
def server(request, hayate_command, tmp_path):
    root = site.make(tmp_path)
    more = {"worker": GENERIC_WORKER} if request.param == "worker" else {}
    with Hayate(root, workers=2, **more) as server:
        yield server


def get(server: Hayate, path: str, **more) -> requests.Response:
    return requests.get(server.url + path, timeout=more.pop("timeout", 60), **more)


def serves(server: Hayate) -> bool:
    try:
        return get(server, "/ok.php?x", timeout=60).text == "ok x"
    except requests.RequestException:
        return False


def kill_front(server: Hayate) -> int:
    """Kills the front. Returns its process id, once another one serves."""
    front = server.front
    os.kill(front, signal.SIGKILL)
    assert wait_until(lambda: server.run("status").returncode == 0 and server.front != front), server.log_tail()
    return front


def test_a_front_that_is_killed_costs_no_connection(server) -> None:
    stop = threading.Event()
    refused: list[str] = []
    answered = 0

    def connect() -> None:
        nonlocal answered
        while not stop.is_set():
            try:
                with socket.create_connection(("127.0.0.1", server.port), timeout=60) as one:
                    try:
                        one.sendall(b"GET /ok.php?x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                        answered += one.recv(65536).startswith(b"HTTP/1.1 200")
                    except OSError:
                        pass  # a request of that moment
            except OSError as error:
                refused.append(repr(error))

    threads = [threading.Thread(target=connect) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        time.sleep(0.2)
        kill_front(server)
    stop.set()
    for thread in threads:
        thread.join()
    assert refused == [] and answered > 10
    assert serves(server) and server.logged("the front ended", 3) and server.log().count("the front ended") == 3


def test_a_request_goes_on_when_the_front_dies_and_its_worker_ends_with_it(server, tmp_path) -> None:
    begun, go, done = (tmp_path / name for name in ("begun", "go", "done"))
    (server.root / "later.php").write_text(
        f"<?php ignore_user_abort(true); touch('{begun}'); while (!file_exists('{go}')) {{ usleep(5000); clearstatcache(); }}"
        f"file_put_contents('{done}', getmypid()); echo 'x';"
    )
    thread = threading.Thread(target=lambda: pytest.raises(requests.RequestException, get, server, "/later.php"))
    thread.start()
    assert wait_until(begun.exists)
    before = descendants(server.pid)
    kill_front(server)
    go.touch()
    assert wait_until(done.exists)
    thread.join()
    assert serves(server)
    # The old zygote and its workers are gone, the new ones are others.
    assert wait_until(lambda: still_running(before) == []), still_running(before)


def test_after_a_crash_of_the_front_the_old_workers_do_not_pile_up(server) -> None:
    for _ in range(4):
        kill_front(server)
    assert wait_until(lambda: len(descendants(server.pid)) == 1 + 1 + 2), descendants(server.pid)


def test_a_stopped_front_does_not_keep_the_server_from_ending(server) -> None:
    family = descendants(server.pid)
    stop_process(server.front)
    os.kill(server.pid, signal.SIGTERM)
    time.sleep(0.3)
    os.kill(server.pid, signal.SIGTERM)
    server.process.wait(60)
    assert wait_until(lambda: still_running(family) == []), still_running(family)


def test_a_stopped_front_is_replaced(server) -> None:
    before = server.front
    stop_process(before)
    # Its connections wait for the next one.
    assert get(server, "/ok.php?x", timeout=60).text == "ok x"
    assert server.front != before and server.logged("the front was stopped by a signal; it is killed")


def test_a_server_that_was_stopped_as_a_whole_goes_on_with_the_same_front(server) -> None:
    """As by a frozen cgroup or a machine that slept: the clock has gone on, and the master wakes first."""
    before = server.front
    stop_process(server.pid)
    stop_process(before)
    time.sleep(12)
    os.kill(server.pid, signal.SIGCONT)
    time.sleep(0.5)
    os.kill(before, signal.SIGCONT)
    assert get(server, "/ok.php?x").text == "ok x"
    time.sleep(1.5)
    assert server.front == before and serves(server)


def test_stop_and_reload_go_to_the_master(server) -> None:
    before = get(server, "/pid.php").text
    os.kill(server.pid, signal.SIGHUP)
    assert wait_until(lambda: get(server, "/pid.php").text != before)
    assert int(server.pid_file.read_text()) == server.pid == server.status()["pid"]
    assert server.run("stop").returncode == 0
    assert server.process.wait(60) == 0 and not server.pid_file.exists() and not server.control.exists()


def test_reload_opens_and_closes_addresses(hayate_command, tmp_path) -> None:
    root, one, two = site.make(tmp_path), tmp_path / "one.sock", tmp_path / "two.sock"

    def config(path: pathlib.Path) -> str:
        return f'listen = ["unix:{path}"]\ncontrol = "{tmp_path}/c.sock"\n[[app]]\nroot = "{root}"\nworkers = 1\n'

    class Unix(Hayate):
        def command(self):
            self.control = tmp_path / "c.sock"
            return [str(hayate_command), "serve", "--config", str(self._config), "--pid-file", str(self.pid_file)]

        def ready(self):
            return self.run("status").returncode == 0

    def answers(path: pathlib.Path) -> bool:
        try:
            with socket.socket(socket.AF_UNIX) as sock:
                sock.settimeout(5)
                sock.connect(str(path))
                sock.sendall(b"GET /ok.php?x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                return sock.recv(100).startswith(b"HTTP/1.1 200")
        except OSError:
            return False

    with Unix(config=config(one)) as server:
        assert answers(one)
        server._config.write_text(config(two))
        assert server.reload().returncode == 0
        assert answers(two)
        # The master hears of it from the front, after whoever asked for it.
        assert wait_until(lambda: not one.exists())
        # A refused one leaves no socket behind.
        (tmp_path / "busy.sock").mkdir()
        server._config.write_text(config(tmp_path / "busy.sock"))
        refused = server.reload()
        assert refused.returncode == 1 and "busy.sock" in refused.stderr
        front = server.front
        os.kill(front, signal.SIGKILL)
        assert wait_until(lambda: server.run("status").returncode == 0 and server.front != front)
        assert answers(two)
    assert not two.exists()


def test_php_gets_the_limit_of_open_files_that_the_server_was_started_with(hayate_command, tmp_path) -> None:
    root = site.make(tmp_path)
    (root / "limit.php").write_text("<?php echo posix_getrlimit()['soft openfiles'];")

    class Limited(Hayate):
        def command(self):
            return ["/usr/bin/prlimit", "--nofile=777:4096", *super().command()]

    with Limited(root, workers=1) as server:
        assert get(server, "/limit.php").text == "777"
        limits = pathlib.Path(f"/proc/{server.front}/limits").read_text()
        assert [line.split()[3] for line in limits.splitlines() if line.startswith("Max open files")] == ["4096"]


@pytest.mark.skipif(not ROOT, reason="only root can keep a file from others")
def test_the_configuration_may_be_readable_by_root_alone(hayate_command) -> None:
    directory = temporary_directory("master")
    try:
        root = site.make(directory)
        config = directory / "hayate.toml"
        config.write_text(f'user = "www-data"\n[[app]]\nroot = "{root}"\nworkers = 1\n')
        config.chmod(0o600)
        with Hayate(config=config) as server:
            before = get(server, "/pid.php").text
            assert server.reload().returncode == 0
            assert get(server, "/pid.php").text != before
            config.write_text("nonsense = 1\n")
            refused = server.reload()
            assert refused.returncode == 1 and "unknown key 'nonsense'" in refused.stderr
            assert serves(server)
    finally:
        shutil.rmtree(directory)


@pytest.mark.skipif(not ROOT, reason="only root can become another user")
def test_php_has_the_user_of_the_configuration_that_is_served(hayate_command) -> None:
    """The fault: the log said that nothing changes before a restart."""
    directory = temporary_directory("master")
    try:
        root = site.make(directory)
        (root / "uid.php").write_text("<?php echo posix_getpwuid(posix_geteuid())['name'];")
        config = directory / "hayate.toml"
        text = f'[[app]]\nroot = "{root}"\nworkers = 1\n'
        config.write_text('user = "www-data"\n' + text)
        with Hayate(config=config) as server:
            assert get(server, "/uid.php").text == "www-data"
            for keys, user in (('user = "backup"\n', "backup"), ("", "root")):
                config.write_text(keys + text)
                assert server.reload().returncode == 0
                assert get(server, "/uid.php").text == user
            assert server.logged("PHP runs as root")
            assert "user has changed" not in server.log().replace("front_user has changed", "")
    finally:
        shutil.rmtree(directory)


def test_the_hidden_commands_are_not_for_people(hayate_command) -> None:
    done = subprocess.run([str(hayate_command), "front"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "is started by `hayate serve`" in done.stderr
    told = subprocess.run([str(hayate_command), "--help"], capture_output=True, text=True, timeout=60, check=True)
    assert "load-plan" not in told.stdout and "front" not in told.stdout
