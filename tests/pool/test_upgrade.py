"""`hayate upgrade`: another program takes the running one's place, and no connection is refused."""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import re
import shutil
import signal
import socket
import threading
import time

import pytest
import requests

from lib import site
from lib.process import descendants, still_running, stop_process, wait_until
from lib.servers import GENERIC_WORKER, Hayate, free_port
from lib.tls import TlsHayate


@pytest.fixture(params=["classic", "worker"])
def server(request, hayate_command, tmp_path):
    """A server whose program is installed at a place of its own, behind a symbolic link."""
    root = site.make(tmp_path / "site")
    installed = tmp_path / "installed"
    for name in ("one", "two"):
        release = installed / name
        release.mkdir(parents=True)
        shutil.copy(hayate_command, release)
        for host in hayate_command.parent.glob("hayate-php*[0-9]"):
            shutil.copy(host, release)
    (installed / "current").symlink_to("one")

    class Installed(Hayate):
        def command(self):
            return [str(installed / "current/hayate"), *super().command()[1:]]

    worker = f'worker = "{GENERIC_WORKER}"\n' if request.param == "worker" else ""
    with Installed(config=f'[[app]]\nroot = "{root}"\nworkers = 2\n{worker}') as server:
        server.installed = installed
        server.site = root
        yield server


def install(server: Hayate, name: str) -> None:
    link = server.installed / "new"
    link.symlink_to(name)
    link.rename(server.installed / "current")


def get(server: Hayate, path: str, **more) -> requests.Response:
    return requests.get(server.url + path, timeout=60, **more)


def upgraded(server: Hayate) -> int:
    """Upgrades. Returns the new front."""
    before = server.front
    done = server.run("upgrade", timeout=60)
    assert done.returncode == 0 and done.stdout == "upgraded\n", (done, server.log_tail())
    assert wait_until(lambda: server.front != before)
    return server.front


def test_under_load_no_request_fails(server) -> None:
    stop = threading.Event()
    failed: list[str] = []
    counts: list[int] = []

    def load() -> None:
        n = 0
        while not stop.is_set():
            try:
                with socket.create_connection(("127.0.0.1", server.port), timeout=60) as one:
                    one.sendall(b"GET /sleep.php?ms=5 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                    answer = b""
                    while part := one.recv(65536):
                        answer += part
                if not answer.startswith(b"HTTP/1.1 200"):
                    failed.append(repr(answer[:200]))
            except OSError as error:
                failed.append(repr(error))
            n += 1
        counts.append(n)

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    fronts = {server.front}
    for name in ("two", "one", "two"):
        install(server, name)
        fronts.add(upgraded(server))
        assert os.readlink(f"/proc/{server.pid}/exe") == str(server.installed / name / "hayate")
        assert os.readlink(f"/proc/{server.front}/exe") == str(server.installed / name / "hayate")
        time.sleep(0.2)
    stop.set()
    for thread in threads:
        thread.join()
    assert failed == [] and sum(counts) > 50 and len(fronts) == 4
    assert server.process.poll() is None and int(server.pid_file.read_text()) == server.pid
    # What served before is gone: master, front, zygote, two workers.
    assert wait_until(lambda: len(server.family()) == 4), server.family()


def test_a_request_of_the_old_front_is_finished(server) -> None:
    answers: list[str] = []
    slow = threading.Thread(target=lambda: answers.append(get(server, "/sleep.php?ms=3000").text))
    slow.start()
    time.sleep(0.5)
    old = server.family()
    upgraded(server)
    assert get(server, "/ok.php?x").text == "ok x"
    slow.join()
    assert len(answers) == 1 and answers[0] != ""
    assert wait_until(lambda: still_running(old) == []), still_running(old)


def read_answer(connection: socket.socket) -> bytes:
    """The head and body of an answer that has a length of a few bytes."""
    data = b""
    while not data.endswith(b"ok x"):
        piece = connection.recv(65536)
        assert piece, f"the connection ended after {data!r}"
        data += piece
    return data


def test_a_connection_that_idles_gets_one_more_answer(server) -> None:
    """Else a request that is on its way when the fronts change would be lost, and a client must not repeat a POST by itself."""
    request = b"GET /ok.php?x HTTP/1.1\r\nHost: a\r\n\r\n"
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=60) as idle,
        socket.create_connection(("127.0.0.1", server.port), timeout=60) as silent,
    ):
        for connection in (idle, silent):
            connection.sendall(request)
            assert b"connection: close" not in read_answer(connection).lower()
        old = server.family()
        upgraded(server)
        # The old front's threads hear of it in a moment.
        answers = [b""]
        while b"connection: close" not in answers[-1].lower():
            idle.sendall(request)
            answers.append(read_answer(idle))
        assert idle.recv(1) == b"", "that was its last"
        assert silent.recv(1) == b"", "who says nothing more is not waited for for ever"
        assert wait_until(lambda: still_running(old).count(server.pid) == len(still_running(old)))
    assert get(server, "/ok.php?x").text == "ok x"


def test_a_program_that_is_none_is_refused(server) -> None:
    before = server.front
    (server.installed / "broken").mkdir()
    program = server.installed / "broken/hayate"
    install(server, "broken")
    ran = server.installed / "ran"
    for text, mode, said in (
        (None, 0, "cannot run"),
        ("no program", 0o644, "cannot run"),
        # The fault: a shell was given it.
        (f"touch {ran}\n", 0o755, "cannot run"),
        ("#!/bin/sh\nexit 3\n", 0o755, "Install it again"),
        ("#!/bin/sh\nexit 0\n", 0o755, "Install it again"),
        ("#!/bin/sh\necho x >&3\n", 0o755, "Install it again"),
        ("#!/bin/sh\necho '{}' >&3\n", 0o755, "cannot take over from this version"),
    ):
        if text is not None:
            program.write_text(text)
            program.chmod(mode)
        done = server.run("upgrade")
        assert done.returncode == 1 and "the upgrade was refused" in done.stderr, (text, done)
        assert said in done.stderr and (said[0] != "I" or str(server.installed / "current/hayate") in done.stderr), (text, done)
        assert not ran.exists()
        assert server.front == before and get(server, "/ok.php?x").text == "ok x"
    install(server, "two")
    upgraded(server)


FORGETFUL = """#!/usr/bin/python3
import json, os, sys
# What a master from before a key was added would hand over: the key is not there.
for variable in ("HAYATE_HANDOVER_TRIAL", "HAYATE_HANDOVER"):
    if variable in os.environ:
        with open(int(os.environ[variable]), "r+", closefd=False) as file:
            file.seek(0)
            state = json.load(file)
            del state["plan"]["apps"][0]["spec"]["workers"]
            file.seek(0)
            file.truncate()
            json.dump(state, file)
os.execv("%s", ["hayate", *sys.argv[1:]])
"""


def test_a_program_that_does_not_understand_the_running_one_is_refused(server) -> None:
    """The fault: it was found out when it had taken the master's place, and all of the server ended."""
    before = server.front
    (server.installed / "forgetful").mkdir()
    program = server.installed / "forgetful/hayate"
    program.write_text(FORGETFUL % (server.installed / "two/hayate"))
    program.chmod(0o755)
    install(server, "forgetful")
    done = server.run("upgrade")
    assert done.returncode == 1 and "cannot take over from the one that runs" in done.stderr and "`workers`" in done.stderr, done
    assert server.front == before and get(server, "/ok.php?x").text == "ok x"
    install(server, "two")
    upgraded(server)


def test_what_an_old_front_still_does_counts_as_draining(server) -> None:
    """Who deletes the old release as soon as nothing runs from it any more goes by that."""
    go = server.site / "go"
    (server.site / "waits.php").write_text("<?php while (!file_exists(__DIR__ . '/go')) { usleep(10000); clearstatcache(); } echo 'gone';")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        slow = pool.submit(get, server, "/waits.php")
        time.sleep(0.5)
        assert server.status()["draining"] == 0
        upgraded(server)
        assert server.status()["draining"] == 1
        go.touch()
        assert slow.result().text == "gone"
    assert wait_until(lambda: server.status()["draining"] == 0)


def test_an_old_front_that_was_stopped_is_killed(server) -> None:
    """The fault: nobody looked at it for an hour, and its clients hung."""
    old, family = server.front, server.family()
    stop_process(old)
    # The command goes to the front that is stopped.
    os.kill(server.pid, signal.SIGUSR2)
    assert wait_until(lambda: server.front != old and get(server, "/ok.php?x").text == "ok x")
    assert wait_until(lambda: old not in still_running(family)), server.log_tail()
    assert server.run("stop").returncode == 0 and server.process.wait(60) == 0


@pytest.mark.parametrize("ends", ["upgrade", "reload"])
def test_who_was_accepted_while_the_front_was_full_is_answered(hayate_command, tmp_path, ends: str) -> None:
    """Of two listeners one takes the last place, and the other has accepted somebody already. The fault: she was cut off without a word."""
    root, ports = site.make(tmp_path / "site"), {"port": free_port(), "other": free_port()}
    config = f'listen = ["127.0.0.1:{{port}}", "127.0.0.1:{{other}}"]\ndrain_timeout = "20s"\n[limits]\nconnections = 2\n[[app]]\nroot = "{root}"\nworkers = 4\n'

    def ask(port: int, ms: int) -> bytes:
        answer = b""
        with socket.create_connection(("127.0.0.1", port), timeout=60) as one:
            one.sendall(b"GET /sleep.php?ms=%d HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" % ms)
            while part := one.recv(65536):
                answer += part
        return answer

    with TlsHayate(config, ports) as server, concurrent.futures.ThreadPoolExecutor(3) as pool:
        asked = []
        # Whoever asked whether it serves may be there still, and a listener that finds all places taken accepts nobody.
        assert wait_until(lambda: server.status()["connections"] == 0)
        # One place is left after the first, none after the second; they are not over when the front that was replaced takes nothing more.
        for port, ms in ((ports["port"], 14_000), (ports["port"], 14_000), (ports["other"], 0)):
            asked.append(pool.submit(ask, port, ms))
            time.sleep(0.5)
        if ends == "reload":
            server._config.write_text(server._config.read_text().replace(f', "127.0.0.1:{ports["other"]}"', ""))
        assert server.run(ends, timeout=60).returncode == 0, server.log_tail()
        assert [answer.result().split(b"\r\n")[0] for answer in asked] == [b"HTTP/1.1 200 OK"] * 3


def test_a_configuration_that_is_wrong_is_refused(server) -> None:
    before, text = server.front, server._config.read_text()
    server._config.write_text(text + "nonsense = 1\n")
    done = server.run("upgrade")
    assert done.returncode == 1 and "nonsense" in done.stderr
    assert server.front == before and get(server, "/ok.php?x").text == "ok x"
    server._config.write_text(text)
    upgraded(server)


def test_an_application_that_does_not_boot_leaves_the_old_front_serving(server, tmp_path) -> None:
    before, text = server.front, server._config.read_text()
    (server.site / "broken.php").write_text("<?php throw new RuntimeException('the new release is broken');")
    server._config.write_text(f'[[app]]\nroot = "{server.site}"\nworker = "broken.php"\nworkers = 1\n')
    done = server.run("upgrade", timeout=60)
    assert done.returncode == 1 and "the new release is broken" in done.stderr, done
    assert server.front == before and get(server, "/ok.php?x").text == "ok x"
    # It still can do all it could: reload, and upgrade.
    server._config.write_text(text)
    assert server.reload().returncode == 0, server.log_tail()
    upgraded(server)
    assert get(server, "/ok.php?x").text == "ok x"


def test_after_an_upgrade_the_server_ends_as_before(server) -> None:
    upgraded(server)
    family = descendants(server.pid)
    assert server.run("stop").returncode == 0
    assert server.process.wait(60) == 0
    assert wait_until(lambda: still_running(family) == [])
    assert not server.control.exists() and not server.pid_file.exists()


def test_a_signal_upgrades_as_the_command_does(server) -> None:
    """SIGUSR2, as of nginx and php-fpm. The fault: it ended the server, and requests with it."""
    answers: list[str] = []
    slow = threading.Thread(target=lambda: answers.append(get(server, "/sleep.php?ms=3000").text))
    slow.start()
    time.sleep(0.5)
    before = server.front
    install(server, "two")
    os.kill(server.pid, signal.SIGUSR2)
    # One comes after the other, or not at all.
    os.kill(server.pid, signal.SIGUSR2)
    assert server.logged("upgraded: a new front serves"), server.log_tail()
    assert os.readlink(f"/proc/{server.pid}/exe") == str(server.installed / "two/hayate")
    assert wait_until(lambda: server.front != before) and get(server, "/ok.php?x").text == "ok x"
    slow.join()
    assert len(answers) == 1 and answers[0].isdigit()
    (server.installed / "two/hayate").unlink()
    (server.installed / "two/hayate").write_text("nonsense")
    front = server.front
    os.kill(server.pid, signal.SIGUSR2)
    assert server.logged("the upgrade was refused, what served goes on serving"), server.log_tail()
    assert server.front == front and get(server, "/ok.php?x").text == "ok x"


class SlowToBoot(Hayate):
    """A server whose application boots as long as there is a file, and says which release it is; what systemd would hear is kept."""

    def __init__(self, directory: pathlib.Path, **more) -> None:
        directory.mkdir()
        self.application = directory
        self.release("one")
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notify.bind(str(directory / "notify"))
        #: What the service manager has heard so far: READY, RELOADING, STOPPING.
        self.said: list[str] = []
        threading.Thread(target=self._hear, args=(notify,), daemon=True).start()
        text = f'[[app]]\nroot = "{directory}"\nworkers = 1\nworker = "worker.php"\nwarmup = []\nenv = {{ RELEASE = "1" }}\n'
        super().__init__(config=text, env={"NOTIFY_SOCKET": str(directory / "notify")}, **more)

    def release(self, name: str, waits_for: str = "wait") -> None:
        (self.application / "new.php").write_text(
            f"<?php file_put_contents(__DIR__ . '/boots', '{name} ', FILE_APPEND);\n"
            f"while (file_exists(__DIR__ . '/{waits_for}')) {{ usleep(5000); clearstatcache(); }}\n"
            f"while (hayate_handle_request(function () {{ echo '{name} ', $_SERVER['RELEASE'] ?? getenv('RELEASE'); }})) {{}}"
        )
        (self.application / "new.php").rename(self.application / "worker.php")

    def configure(self, number: int) -> None:
        """Sets the number that it says, without a moment at which the file is half written."""
        text = re.sub('RELEASE = "[0-9]+"', f'RELEASE = "{number}"', self._config.read_text())
        new = self._config.with_suffix(".new")
        new.write_text(text)
        new.rename(self._config)

    def boots(self, n: int) -> bool:
        return wait_until(lambda: (self.application / "boots").read_text().count(" ") == n)

    def _hear(self, notify: socket.socket) -> None:
        while True:
            self.said.append(notify.recv(4096).decode().partition("=")[0])


@pytest.fixture
def slow(tmp_path):
    with SlowToBoot(tmp_path / "app") as server:
        yield server


@pytest.fixture
def pool():
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        yield pool


def test_a_reload_during_an_upgrade_is_refused_and_works_after_it(slow, pool) -> None:
    (slow.application / "wait").touch()
    upgrade = pool.submit(slow.run, "upgrade")
    assert slow.boots(2)
    slow.configure(2)
    done = slow.reload()
    assert done.returncode == 1 and "an upgrade is under way" in done.stderr, done
    assert "another upgrade is under way" in slow.run("upgrade").stderr
    (slow.application / "wait").unlink()
    assert upgrade.result().stdout == "upgraded\n"
    assert get(slow, "/").text == "one 1"
    assert slow.reload().returncode == 0 and get(slow, "/").text == "one 2"
    assert wait_until(lambda: slow.said[-1:] == ["READY"]), slow.said


@pytest.mark.parametrize("outcome", ["taken", "refused"])
def test_a_hangup_during_an_upgrade_is_a_reload_after_it(slow, pool, outcome) -> None:
    (slow.application / "wait").touch()
    upgrade = pool.submit(slow.run, "upgrade")
    assert slow.boots(2)
    slow.configure(2)
    slow.process.send_signal(signal.SIGHUP)
    assert slow.logged("an upgrade is under way; the reload comes after it")
    successor = next(pid for pid in slow.family() if pid != slow.front and is_front(pid))
    if outcome == "refused":
        os.kill(successor, signal.SIGKILL)
        assert upgrade.result().returncode == 1
    (slow.application / "wait").unlink()
    upgrade.result()
    assert wait_until(lambda: get(slow, "/").text == "one 2"), slow.log_tail()
    assert (slow.front == successor) == (outcome == "taken")
    assert wait_until(lambda: slow.said[-2:] == ["RELOADING", "READY"]), slow.said


def test_a_hangup_while_the_configuration_is_read_for_an_upgrade_is_not_lost(slow, pool) -> None:
    """The master that was replaced by then has handed it on."""
    for number in range(2, 8):
        upgrade = pool.submit(slow.run, "upgrade")
        time.sleep(0.02 * (number - 2))
        slow.configure(number)
        slow.process.send_signal(signal.SIGHUP)
        assert upgrade.result().returncode == 0
        assert wait_until(lambda: get(slow, "/").text == f"one {number}"), slow.log_tail()
    assert wait_until(lambda: slow.said[-1:] == ["READY"]), slow.said


@pytest.mark.parametrize("order", ["reload", "upgrade"])
def test_who_waits_while_the_server_ends_is_told_so(slow, pool, order) -> None:
    """The fault: "what served goes on serving"."""
    (slow.application / "wait").touch()
    command = pool.submit(slow.run, order)
    assert slow.boots(2)
    slow.process.send_signal(signal.SIGTERM)
    done = command.result()
    assert done.returncode == 1 and "the server is stopping" in done.stderr and "serving" not in done.stderr, done
    assert slow.process.wait(60) == 0
    assert "what served goes on serving" not in slow.log()


def test_a_reload_that_an_upgrade_overtakes_is_told_so(slow, pool) -> None:
    (slow.application / "wait").touch()
    reload = pool.submit(slow.reload)
    assert slow.boots(2)
    slow.release("two", waits_for="nothing")
    upgraded(slow)
    assert get(slow, "/").text == "two 1"
    done = reload.result()
    assert done.returncode == 1 and "an upgrade was done meanwhile; ask again" in done.stderr, done
    assert wait_until(lambda: "RELOADING" in slow.said and slow.said[-1] == "READY"), slow.said


def test_a_reload_that_boots_while_an_upgrade_is_refused_is_done(slow, pool) -> None:
    """The master that was replaced by then has handed on what is to be served."""
    (slow.application / "wait").touch()
    slow.configure(2)
    reload = pool.submit(slow.reload)
    assert slow.boots(2)
    slow.release("two", waits_for="wait too")
    (slow.application / "wait too").touch()
    upgrade = pool.submit(slow.run, "upgrade")
    assert slow.boots(3)
    successor = next(pid for pid in slow.family() if pid != slow.front and is_front(pid))
    os.kill(successor, signal.SIGKILL)
    assert upgrade.result().returncode == 1
    (slow.application / "wait").unlink()
    assert reload.result().returncode == 0
    assert get(slow, "/").text == "one 2"
    # A front that takes the place of one that died serves the same.
    (slow.application / "wait too").unlink()
    os.kill(slow.front, signal.SIGKILL)
    assert wait_until(lambda: get(slow, "/").text == "two 2")


class ByItsConfiguration(SlowToBoot):
    """The same, where the configuration says at which addresses it listens."""

    def _says_where(self) -> bool:
        return True

    def command(self):
        command = list(super().command())
        at = command.index("--listen")
        self._config.write_text(f'listen = ["{command[at + 1]}"]\n' + self._config.read_text())
        del command[at : at + 2]
        return command


def test_an_upgrade_that_is_refused_leaves_the_master_what_a_reload_boots(tmp_path, pool) -> None:
    """The fault: the reload "worked", and with the next death of a zygote its application was gone: nobody knew its configuration."""
    with ByItsConfiguration(tmp_path / "app") as slow, socket.socket() as other:
        (slow.application / "wait").touch()
        slow.configure(2)
        reload = pool.submit(slow.reload)
        assert slow.boots(2)
        other.bind(("127.0.0.1", 0))
        other.listen()
        text = slow._config.read_text()
        slow._config.write_text(text.replace('"]', f'", "127.0.0.1:{other.getsockname()[1]}"]', 1))
        done = slow.run("upgrade")
        assert done.returncode == 1 and "Address already in use" in done.stderr, done
        slow._config.write_text(text)
        (slow.application / "wait").unlink()
        assert reload.result().returncode == 0
        assert get(slow, "/").text == "one 2"
        (app,) = slow.status()["apps"]
        os.kill(app["zygote"], signal.SIGKILL)
        assert slow.boots(3) and get(slow, "/").text == "one 2", slow.log_tail()


def test_an_upgrade_whose_front_was_killed_is_followed_by_one_that_works(slow, pool) -> None:
    """The fault: fronts had numbers that had been given before, and what the dead one had begun to boot was taken for the new one's."""
    (slow.application / "wait").touch()
    upgrade = pool.submit(slow.run, "upgrade")
    assert slow.boots(2)
    os.kill(next(pid for pid in slow.family() if pid != slow.front and is_front(pid)), signal.SIGKILL)
    assert upgrade.result().returncode == 1
    slow.release("two", waits_for="nothing")
    upgraded(slow)
    assert get(slow, "/").text == "two 1"


def is_front(pid: int) -> bool:
    return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1:2] == [b"front"]


def test_all_fronts_open_the_access_log_anew(tmp_path, pool) -> None:
    """The one that serves, the one that still boots, and the one that finishes what it has begun."""
    log, old = tmp_path / "access.log", tmp_path / "access.log.1"
    with SlowToBoot(tmp_path / "app", access_log=str(log)) as server:
        worker = server.application / "worker.php"
        worker.write_text(
            worker.read_text().replace(
                "{ echo", "{ while (isset($_GET['go']) && !file_exists($_GET['go'])) { usleep(2000); clearstatcache(); } echo", 1
            )
        )
        assert server.reload().returncode == 0
        go = tmp_path / "go"
        finishes = pool.submit(get, server, f"/finishes?go={go}")
        assert wait_until(lambda: server.status()["apps"][0]["workers"][0]["state"] == "serving")
        (server.application / "wait").touch()
        upgrade = pool.submit(server.run, "upgrade")
        assert server.boots(3)
        log.rename(old)
        server.process.send_signal(signal.SIGUSR1)
        assert wait_until(log.exists)
        (server.application / "wait").unlink()
        assert upgrade.result().returncode == 0
        assert get(server, "/serves").status_code == 200
        assert wait_until(lambda: "/serves" in log.read_text()), (log.read_text(), old.read_text())
        log.rename(old)
        server.process.send_signal(signal.SIGUSR1)
        assert wait_until(log.exists)
        time.sleep(0.5)
        go.touch()
        assert finishes.result().status_code == 200
        assert wait_until(lambda: "/finishes" in log.read_text()), (log.read_text(), old.read_text())
