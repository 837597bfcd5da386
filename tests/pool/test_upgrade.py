"""`hayate upgrade`: another program takes the running one's place, and no connection is refused."""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time

import pytest
import requests

from lib import site
from lib.process import descendants, still_running, wait_until
from lib.servers import GENERIC_WORKER, Hayate


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
    for text, mode in ((None, 0), ("no program", 0o644), ("#!/bin/sh\nexit 3\n", 0o755), ("#!/bin/sh\necho x >&3\n", 0o755)):
        if text is not None:
            program.write_text(text)
            program.chmod(mode)
        done = server.run("upgrade")
        assert done.returncode == 1 and "the upgrade was refused" in done.stderr, (text, done)
        assert server.front == before and get(server, "/ok.php?x").text == "ok x"
    install(server, "two")
    upgraded(server)


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
