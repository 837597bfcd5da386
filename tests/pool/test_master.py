"""The master: what holds the sockets outlives what speaks HTTP, and nothing outlives the master."""

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

import pytest
import requests

from lib import site
from lib.process import PATIENCE, descendants, still_running, stop_process, temporary_directory, wait_until
from lib.servers import GENERIC_WORKER, Hayate, free_port

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


@pytest.mark.parametrize("waits_for", ["room", "room amid its body", "a body"])
def test_what_waits_for_a_front_that_is_gone_goes_on_without_it(hayate_command, tmp_path, waits_for) -> None:
    """As if its client had left: scripts end in order, or hear of it, half a body is no whole one, and nobody is left of those who served."""
    tmp_path.chmod(0o777)
    begun, done = tmp_path / "begun", tmp_path / "done"
    writes = "for ($i = 0; $i < 300; $i++) { echo str_repeat('x', 100000); }"
    (tmp_path / "room.php").write_text(
        f"<?php touch('{begun}'); register_shutdown_function(function () {{ file_put_contents('{done}', 'ends '.connection_aborted()); }}); {writes} echo 'never'; touch('{done}');"
    )
    (tmp_path / "amid.php").write_text(
        f"<?php ignore_user_abort(true); touch('{begun}'); $in = fopen('php://input', 'rb'); $n = strlen(fread($in, 8192)); {writes}"
        f"$n += strlen(stream_get_contents($in)); file_put_contents('{done}', \"$n \" . connection_aborted());"
    )
    (tmp_path / "body.php").write_text(
        f"<?php touch('{begun}'); $n = strlen(file_get_contents('php://input')); file_put_contents('{done}', \"$n \" . connection_aborted());"
    )
    requests_of = {
        "room": b"GET /room.php HTTP/1.1\r\nHost: a\r\n\r\n",
        "room amid its body": b"PUT /amid.php HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n" + 20_000 * b"x",
        "a body": b"PUT /body.php HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n" + 100_000 * b"x",
    }
    config = f'[[app]]\nroot = "{tmp_path}"\nworkers = 2\nrequest_buffering = false\n'
    with Hayate(config=config) as server, socket.create_connection(("127.0.0.1", server.port)) as client:
        before = descendants(server.pid)
        client.sendall(requests_of[waits_for])
        assert wait_until(begun.exists)
        time.sleep(0.5)
        assert not done.exists()
        kill_front(server)
        # Not after half a minute.
        assert wait_until(lambda: still_running(before) == [], 10), still_running(before)
        assert done.read_text() == {"room": "ends 1", "room amid its body": "20000 1", "a body": "100000 1"}[waits_for]


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


def test_it_may_be_started_by_somebody_who_ignores_children(hayate_command, tmp_path) -> None:
    """Which is inherited. It hung without a word."""

    class Ignoring(Hayate):
        def command(self):
            return ["/bin/sh", "-c", 'trap "" CHLD; exec "$@"', "sh", *super().command()]

    with Ignoring(site.make(tmp_path), workers=1) as server:
        assert serves(server)
        assert server.reload().returncode == 0 and serves(server)


def test_metrics_of_sites_that_are_gone_go_as_well(hayate_command, tmp_path) -> None:
    """Names may come from releases, and each deployment would leave some for good."""
    root = site.make(tmp_path)
    address = f"127.0.0.1:{free_port()}"
    config = f'[[app]]\nname = "release-0"\nroot = "{root}"\nworkers = 1\n'
    with Hayate(config=config, args=["--metrics", address]) as server:
        for n in range(1, 4):
            assert serves(server)
            server._config.write_text(server._config.read_text().replace(f"release-{n - 1}", f"release-{n}"))
            assert server.reload().returncode == 0
        assert serves(server)

        def metrics() -> str:
            return requests.get(f"http://{address}/metrics", timeout=60).text

        def told() -> set[str]:
            return set(re.findall(r'app="(release-\d)"', metrics()))

        assert wait_until(lambda: told() == {"release-3"}), told()
        assert 'hayate_requests_total{app="release-3",status="200"} ' in metrics()


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


@pytest.mark.skipif(not ROOT, reason="only root can become another user")
@pytest.mark.parametrize("change", ["front_user", "user", "nobody at all"])
def test_a_front_has_the_user_of_the_one_before(hayate_command, change: str) -> None:
    """The fault: a reload said that the user changes with a restart only; the next front had the new one, and could not write the log of the old."""
    directory = temporary_directory("master")
    try:
        root = site.make(directory)
        logs = directory / "log"
        logs.mkdir()
        shutil.chown(logs, "www-data")
        config = directory / "hayate.toml"
        text = f'access_log = "{logs}/access.log"\n[[app]]\nroot = "{root}"\nworkers = 1\n'
        config.write_text('user = "www-data"\nfront_user = "www-data"\n' + text)
        with Hayate(config=config, access_log=None) as server:

            def is_written(path: str) -> bool:
                assert get(server, path).status_code == 200
                return wait_until(lambda: path in (logs / "access.log").read_text())

            # The owner of its directory is root, as of all that keep to themselves.
            def uid_of_front() -> int:
                status = pathlib.Path(f"/proc/{server.front}/status").read_text()
                return int(next(line for line in status.splitlines() if line.startswith("Uid:")).split()[1])

            user = uid_of_front()
            assert user != 0
            users = {
                "front_user": 'user = "www-data"\nfront_user = "backup"\n',
                "user": 'user = "backup"\nfront_user = "backup"\n',
                "nobody at all": "",
            }
            config.write_text(users[change] + text)
            assert server.reload().returncode == 0
            assert server.logged("front_user has changed; that takes effect with a restart only")
            kill_front(server)
            assert uid_of_front() == user and is_written("/ok.php?after-a-crash")
            assert server.run("upgrade").returncode == 0, server.log_tail()
            assert uid_of_front() == user and is_written("/ok.php?after-an-upgrade")
            assert server.logged("front_user has changed", 3)
    finally:
        shutil.rmtree(directory)


def test_a_front_that_follows_another_serves_without_an_access_log(hayate_command, tmp_path) -> None:
    """The fault: it opened the log anew and ended on an error, each time, and nobody was answered any more."""
    logs = tmp_path / "log"
    logs.mkdir()
    root = site.make(tmp_path)
    with Hayate(root, workers=1, access_log=str(logs / "access.log")) as server:
        assert serves(server)
        shutil.rmtree(logs)
        kill_front(server)
        assert serves(server) and server.logged("cannot open the access log")
        assert wait_until(lambda: serves(server) and "lines of the access log were lost" in server.log())
        # What follows one that goes on is to be all right.
        refused = server.run("upgrade")
        assert refused.returncode == 1 and "cannot open the access log" in refused.stderr and "access_log names a file" in refused.stderr
        refused = server.reload()
        assert refused.returncode == 1 and "cannot open the access log" in refused.stderr and serves(server)
        logs.mkdir()

        def written() -> bool:
            assert serves(server)
            return (logs / "access.log").exists() and "/ok.php?x" in (logs / "access.log").read_text()

        assert wait_until(written, interval=0.3), server.log_tail()
        assert re.search(r"the access log \S+ can be written again", server.log())
        assert server.run("upgrade").returncode == 0
        server.stop()
        shutil.rmtree(logs)
        # Who starts it is there to be told.
        refused = subprocess.run(server.command(), capture_output=True, text=True, timeout=60, check=False)
        assert refused.returncode == 1 and "cannot open the access log" in refused.stderr


STRAY = ["SIGALRM", "SIGVTALRM", "SIGPROF", "SIGIO", "SIGPWR", "SIGSTKFLT", "SIGXCPU", "SIGXFSZ", "SIGPIPE", "SIGRTMIN", "SIGRTMAX"]


def test_signals_that_mean_nothing_end_neither_master_nor_front(server) -> None:
    """The fault: the kernel ended the process, and with it all requests; what it had in /run stayed."""
    front = server.front
    for name in STRAY:
        for process in (server.pid, front):
            os.kill(process, getattr(signal, name))
    assert server.logged("SIGALRM means nothing to this server") and server.logged(f"signal {int(signal.SIGRTMAX)} means nothing")
    os.kill(front, signal.SIGUSR2)
    assert serves(server) and server.front == front and server.process.poll() is None


@pytest.mark.parametrize("to", ["master", "front"])
def test_sigquit_finishes_what_is_served(server, to: str) -> None:
    """As of nginx and php-fpm, whose images have containers stopped by it."""
    answers: list[str] = []
    slow = threading.Thread(target=lambda: answers.append(get(server, "/sleep.php?ms=2000").text))
    slow.start()
    time.sleep(0.5)
    os.kill(server.pid if to == "master" else server.front, signal.SIGQUIT)
    slow.join()
    assert len(answers) == 1 and answers[0].isdigit()
    assert server.process.wait(60) == 0 and not server.pid_file.exists() and not server.control.exists()


def test_commands_do_not_wait_for_ever_where_there_is_no_front(server) -> None:
    """The kernel takes their connections, and who would start a front stands still."""
    front = server.front
    stop_process(server.pid)
    try:
        os.kill(front, signal.SIGKILL)
        began = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            commands = [pool.submit(server.run, command, timeout=120) for command in ("status", "reload", "upgrade", "stop")]
        assert 25 < time.monotonic() - began < 60 * PATIENCE
        for command in commands:
            done = command.result()
            assert done.returncode == 1 and "its front has not answered" in done.stderr, done
            assert "its front does not answer yet; waiting for it, 30 s at most" in done.stderr
            assert f"kill -TERM {server.pid} ends the server" in done.stderr
    finally:
        os.kill(server.pid, signal.SIGCONT)
    assert serves(server)


def test_a_service_manager_that_does_not_read_holds_up_nobody(hayate_command, tmp_path) -> None:
    place = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        manager.bind(str(place))
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                other.sendto(b"full", str(place))
        with Hayate(site.make(tmp_path), workers=1, env={"NOTIFY_SOCKET": str(place)}) as server:
            assert server.logged("the service manager does not hear READY=1")
            assert server.reload().returncode == 0 and serves(server)
            kill_front(server)


def test_a_service_manager_may_listen_on_an_abstract_socket(hayate_command, tmp_path) -> None:
    name = f"hayate-notify-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name}")
        manager.settimeout(60)
        with Hayate(site.make(tmp_path), workers=1, env={"NOTIFY_SOCKET": f"@{name}"}):
            assert manager.recv(4096) == b"READY=1\n"


def test_the_hidden_commands_are_not_for_people(hayate_command, tmp_path) -> None:
    done = subprocess.run([str(hayate_command), "front"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "is started by `hayate serve`" in done.stderr
    # The fault: an abort; and a plan, with its keys, in whatever file was there by that number.
    file = tmp_path / "somebody's"
    file.write_text("own")
    for command in ("load-plan", "load-first-plan"):
        for redirect in ("3<&-", '3<>"$1"'):
            shell = ["sh", "-c", f'exec "$0" {command} {redirect}', str(hayate_command), str(file)]
            done = subprocess.run(shell, capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 2 and "`hayate check`" in done.stderr, done
            assert file.read_text() == "own"
    told = subprocess.run([str(hayate_command), "--help"], capture_output=True, text=True, timeout=60, check=True)
    assert "load-plan" not in told.stdout and "front" not in told.stdout
