"""What an operator does by mistake, and two things at once: the server goes on, or ends, and nothing hangs or is left."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import socket
import stat
import subprocess
import threading
import time

import pytest
import requests

from lib import site
from lib.process import free_port, stop_process, wait_until
from lib.servers import REWIND_WORKER, Hayate, hayate_binary


def get(server: Hayate, path: str, **more) -> requests.Response:
    return requests.get(server.url + path, timeout=60, **more)


@pytest.fixture
def server(hayate_command, tmp_path):
    root = site.make(tmp_path / "site")
    with Hayate(config=f'drain_timeout = "10s"\n[[app]]\nroot = "{root}"\nworkers = 2\n') as server:
        server.site = root
        yield server


def begin(server: Hayate, *arguments: str) -> subprocess.Popen:
    command = [str(hayate_binary()), *arguments, "--control", str(server.control)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def slow_configuration(server: Hayate) -> str:
    """Whoever reads the configuration waits from now on. Returns what it was."""
    path = server._config
    text = path.read_text()
    path.unlink()
    os.mkfifo(path)
    return text


def is_read(server: Hayate) -> int:
    """Waits until somebody reads the configuration. Returns where to write it."""
    writer = []

    def opened() -> bool:
        try:
            writer.append(os.open(server._config, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            return False
        return True

    assert wait_until(opened), server.log_tail()
    return writer[0]


def test_a_second_upgrade_does_not_cut_what_the_first_one_still_finishes(server) -> None:
    answers: list[str] = []

    def ask() -> None:
        try:
            answers.append(get(server, "/sleep.php?ms=8000").text)
        except requests.RequestException as error:
            answers.append(repr(error))

    slow = threading.Thread(target=ask)
    slow.start()
    time.sleep(0.5)
    assert server.run("upgrade", timeout=60).returncode == 0
    before = get(server, "/ok.php?x").text
    second = server.run("upgrade", timeout=60)
    slow.join()
    assert before == "ok x" and answers[0].isdigit(), (answers, second, server.log_tail())


@pytest.mark.parametrize("order", ["reload", "upgrade"])
def test_a_server_that_is_told_to_end_while_the_configuration_is_read_ends(server, order: str) -> None:
    text = slow_configuration(server)
    command = begin(server, order)
    writer = is_read(server)
    # A request keeps the old front for a while.
    slow = threading.Thread(target=lambda: get(server, "/sleep.php?ms=3000"))
    slow.start()
    time.sleep(0.5)
    os.kill(server.pid, signal.SIGTERM)
    time.sleep(0.3)
    with pytest.raises(BrokenPipeError):
        os.write(writer, text.encode())
    os.close(writer)
    slow.join()
    try:
        assert wait_until(lambda: server.process.poll() is not None), server.log_tail()
    finally:
        command.kill()
        said, _ = command.communicate()
    assert "the server is stopping" in said


def test_a_configuration_that_cannot_be_read_holds_nobody_up(server) -> None:
    slow_configuration(server)
    first = begin(server, "reload")
    time.sleep(1)
    os.kill(server.pid, signal.SIGHUP)
    time.sleep(0.5)
    assert get(server, "/ok.php?x").text == "ok x"
    # Nobody waits for the configuration.
    server.stop_timeout = 30
    assert server.stop() == 0
    out, _ = first.communicate(timeout=60)
    assert first.returncode != 0, out


def test_an_upgrade_without_a_place_for_the_pid_file_does_not_end_the_server(hayate_command, tmp_path) -> None:
    root = site.make(tmp_path / "site")
    place = tmp_path / "run"
    place.mkdir()

    class Placed(Hayate):
        def command(self):
            command = super().command()
            command[command.index("--pid-file") + 1] = str(place / "hayate.pid")
            return command

    with Placed(root, workers=1) as server:
        shutil.rmtree(place)
        done = server.run("upgrade", timeout=60)
        assert server.process.poll() is None, (done, server.log_tail())
        assert get(server, "/ok.php?x").text == "ok x"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices, and could remove them")
def test_a_device_that_is_named_as_the_pid_file_stays(hayate_command, tmp_path) -> None:
    """As who wants none says /dev/null: the server removed it when it ended."""
    device = tmp_path / "null"
    os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    server = Hayate(site.make(tmp_path), workers=1)
    server.pid_file = device
    with server:
        assert requests.get(server.url + "/ok.php?x", timeout=60).text == "ok x"
    assert stat.S_ISCHR(device.stat().st_mode)


def test_a_stopped_zygote_does_not_outlive_the_front_that_it_was_started_for(server) -> None:
    app = server.status()["apps"][0]
    zygote, workers = app["zygote"], [worker["pid"] for worker in app["workers"]]
    front = server.front
    stop_process(zygote)
    for pid in workers:
        stop_process(pid)
    os.kill(front, signal.SIGKILL)
    try:
        assert wait_until(lambda: server.run("status").returncode == 0 and server.front != front)
        assert get(server, "/ok.php?x").text == "ok x"
        left = {zygote, *workers}
        assert wait_until(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in left)), server.family()
    finally:
        for pid in (zygote, *workers):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def test_an_address_of_a_reload_that_died_with_its_front_is_closed(hayate_command, tmp_path) -> None:
    root = site.make(tmp_path / "site")
    slow = tmp_path / "slow.php"
    slow.write_text("<?php sleep(15); while (hayate_handle_request(function () { echo 'x'; }));")
    ports = [free_port(), free_port()]

    class Listening(Hayate):
        def command(self):
            command = super().command()
            at = command.index("--listen")
            del command[at : at + 2]
            self.port = ports[0]
            return command

    def text(count: int, more: str = "") -> str:
        addresses = ", ".join(f'"127.0.0.1:{port}"' for port in ports[:count])
        return f'listen = [{addresses}]\n[[app]]\nroot = "{root}"\nworkers = 1\n{more}'

    def listens() -> bool:
        try:
            socket.create_connection(("127.0.0.1", ports[1]), timeout=2).close()
        except OSError:
            return False
        return True

    with Listening(config=text(1)) as server:
        front = server.front
        server._config.write_text(text(2, f'worker = "{slow}"\n'))
        command = begin(server, "reload")
        assert wait_until(listens)
        os.kill(front, signal.SIGKILL)
        command.communicate(timeout=60)
        assert wait_until(lambda: server.run("status").returncode == 0 and server.front != front)
        assert wait_until(lambda: not listens()), server.log_tail()


def test_a_stop_after_an_upgrade_lets_the_front_before_finish(server) -> None:
    answers: list[str] = []

    def ask() -> None:
        try:
            answers.append(get(server, "/sleep.php?ms=4000").text)
        except requests.RequestException as error:
            answers.append(repr(error))

    slow = threading.Thread(target=ask)
    slow.start()
    time.sleep(0.5)
    assert server.run("upgrade", timeout=60).returncode == 0
    os.kill(server.pid, signal.SIGTERM)
    slow.join()
    assert answers[0].isdigit(), (answers, server.log_tail())
    assert wait_until(lambda: server.process.poll() is not None)


def test_reloads_upgrades_and_signals_all_at_once(server) -> None:
    stop = threading.Event()
    failed: list[str] = []

    def load() -> None:
        while not stop.is_set():
            try:
                answer = get(server, "/ok.php?x")
                if answer.text != "ok x":
                    failed.append(f"{answer.status_code} {answer.text[:100]}")
            except requests.RequestException as error:
                failed.append(repr(error))

    threads = [threading.Thread(target=load) for _ in range(3)]
    for thread in threads:
        thread.start()
    commands = []
    for n in range(12):
        commands.append(begin(server, "upgrade" if n % 3 == 2 else "reload"))
        for _ in range(50):
            os.kill(server.pid, signal.SIGHUP)
        os.kill(server.pid, signal.SIGUSR1)
        time.sleep(0.3)
    ends = []
    for command in commands:
        try:
            out, _ = command.communicate(timeout=90)
            ends.append((command.args[1], command.returncode, out.strip()[:90]))
        except subprocess.TimeoutExpired:
            command.kill()
            ends.append((command.args[1], "hung", ""))
    stop.set()
    for thread in threads:
        thread.join()
    print(ends)
    assert failed == [], (failed[:5], ends)
    assert not [end for end in ends if end[1] == "hung"], ends
    assert server.reload().returncode == 0
    assert wait_until(lambda: len(server.family()) == 4, 60), server.family()


def test_a_warmup_request_that_ends_the_process_costs_no_more_than_itself(hayate_command, tmp_path) -> None:
    """As under php-fpm, where one page fails. Fault found by attack on 2026-11-27: there was no server."""
    (tmp_path / "ends.php").write_text("<?php posix_kill(getmypid(), 11);")
    (tmp_path / "ok.php").write_text("<?php echo 'ok';")
    with Hayate(tmp_path, worker=REWIND_WORKER, args=["--warmup", "/ends.php"]) as server:
        assert requests.get(f"{server.url}/ok.php").text == "ok"
        assert "SIGSEGV" in server.status()["apps"][0]["cold_boot"]


def test_a_warmup_request_that_resets_opcache_is_no_reason_to_boot_anew(hayate_command, tmp_path) -> None:
    """Fault found by attack on 2026-11-27: the application booted without end."""
    (tmp_path / "resets.php").write_text("<?php echo json_encode(opcache_reset());")
    with Hayate(tmp_path, worker=REWIND_WORKER, workers=1, args=["--warmup", "/resets.php"]) as server:
        pid = server.status()["apps"][0]["zygote"]
        time.sleep(1)
        assert "boots anew" not in server.log()
        assert server.status()["apps"][0]["zygote"] == pid
        assert requests.get(f"{server.url}/resets.php").text == "true"
        assert server.logged("boots anew")
