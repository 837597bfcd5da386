"""`access_log` of an application: its lines go there, and those of all others into the server's."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import threading
import time

import pytest
import requests

from lib.process import wait_until
from lib.servers import Hayate, hayate_binary

CONFIG = """
access_log = "logs/server.log"
access_log_format = "json"
[[app]]
name = "one"
root = "site"
hosts = "one.test"
php = "off"
access_log = "logs/one.log"
[[app]]
name = "two"
root = "site"
hosts = "two.test"
php = "off"
access_log = "logs/one.log"
[[app]]
name = "three"
root = "site"
hosts = "three.test"
php = "off"
access_log = "off"
[[app]]
name = "four"
root = "site"
hosts = "four.test"
php = "off"
"""


@pytest.fixture
def config(hayate_command, tmp_path) -> pathlib.Path:
    tmp_path.chmod(0o755)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text("page")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs").chmod(0o777)
    file = tmp_path / "hayate.toml"
    file.write_text(CONFIG)
    return file


def lines(file: pathlib.Path) -> list[tuple[str, str, int]]:
    if not file.exists():
        return []
    all_of_it = [json.loads(line) for line in file.read_text().splitlines()]
    return sorted((line["host"], line["target"], line["status"]) for line in all_of_it)


def ask(server, host: str, target: str = "/") -> None:
    requests.get(server.url + target, headers={"Host": host}, timeout=60)


def test_lines_go_to_the_applications_own_log(config) -> None:
    logs = config.parent / "logs"
    with Hayate(config=config, user="www-data", access_log=None) as server:
        for host in ("one.test", "two.test", "three.test", "four.test", "nobody.test"):
            ask(server, host)
        ask(server, "one.test", "/nothing")
        of_one = [("one.test", "/", 200), ("one.test", "/nothing", 404), ("two.test", "/", 200)]
        of_server = [("four.test", "/", 200), ("nobody.test", "/", 404)]
        assert wait_until(lambda: lines(logs / "one.log") == of_one), lines(logs / "one.log")
        assert wait_until(lambda: lines(logs / "server.log") == of_server), lines(logs / "server.log")

        # As logrotate does it.
        for name in ("one", "server"):
            (logs / f"{name}.log").rename(logs / f"{name}.log.1")
        os.kill(server.pid, signal.SIGUSR1)
        assert wait_until(lambda: (logs / "one.log").exists() and (logs / "server.log").exists())
        ask(server, "two.test", "/new")
        assert wait_until(lambda: lines(logs / "one.log") == [("two.test", "/new", 404)])
        assert lines(logs / "one.log.1") == of_one

        # A reload gives one a log of its own, and takes the other's.
        config.write_text(CONFIG.replace('"logs/one.log"', '"logs/two.log"', 2).replace('"logs/two.log"', '"logs/one.log"', 1).replace('"off"\n[[app]]\nname = "four"', '"logs/server.log"\n[[app]]\nname = "four"'))
        assert server.run("reload").returncode == 0
        for host in ("one.test", "two.test", "three.test"):
            ask(server, host, "/again")
        assert wait_until(lambda: lines(logs / "two.log") == [("two.test", "/again", 404)])
        assert wait_until(lambda: ("one.test", "/again", 404) in lines(logs / "one.log"))
        # Into the same file as the server's, by the same thread.
        assert wait_until(lambda: ("three.test", "/again", 404) in lines(logs / "server.log"))
        ask(server, "two.test", "/last")
    # What was gathered is written at the end.
    assert ("two.test", "/last", 404) in lines(logs / "two.log")


def test_a_log_that_cannot_be_written_is_an_error(config) -> None:
    config.write_text(CONFIG.replace('"logs/one.log"', '"nowhere/one.log"'))
    done = subprocess.run([hayate_binary(), "check", "--config", config], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "hayate.toml:9: access_log: " in done.stderr and "nowhere" in done.stderr, done.stderr
    config.write_text(CONFIG.replace('"logs/one.log"', '""'))
    done = subprocess.run([hayate_binary(), "check", "--config", config], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "hayate.toml:9: access_log: write off, - or the path of a file" in done.stderr, done.stderr


def test_a_log_that_stalls_holds_up_no_other(config) -> None:
    """A pipe that nobody reads any more."""
    logs = config.parent / "logs"
    os.mkfifo(logs / "one.log")
    (logs / "one.log").chmod(0o666)
    reader = os.open(logs / "one.log", os.O_RDONLY | os.O_NONBLOCK)
    with Hayate(config=config, user="www-data", access_log=None) as server:
        for _ in range(300):
            ask(server, "one.test", "/" + "x" * 2000)
        ask(server, "four.test", "/")
        assert wait_until(lambda: lines(logs / "server.log") == [("four.test", "/", 200)])
    os.close(reader)


def test_what_a_slow_reader_still_has_to_take_is_waited_for_after_a_reload_has_moved_the_log(config) -> None:
    logs = config.parent / "logs"
    os.mkfifo(logs / "one.log")
    (logs / "one.log").chmod(0o666)
    reader = os.open(logs / "one.log", os.O_RDONLY | os.O_NONBLOCK)
    with Hayate(config=config, user="www-data", access_log=None) as server:
        for n in range(300):
            ask(server, "one.test", f"/{n}/" + "x" * 2000)
        config.write_text(CONFIG.replace("one.log", "two.log"))
        assert server.run("reload").returncode == 0
        ask(server, "one.test", "/moved")
        # Long enough for what was gathered to be handed over.
        assert wait_until(lambda: lines(logs / "two.log") == [("one.test", "/moved", 404)])
        time.sleep(1.5)
        got = bytearray()
        os.set_blocking(reader, True)
        reading = threading.Thread(target=lambda: [got.extend(block) for block in iter(lambda: os.read(reader, 1 << 16), b"")])
        os.kill(server.pid, signal.SIGTERM)
        time.sleep(0.5)
        reading.start()
        reading.join(60)
    os.close(reader)
    assert got.count(b"\n") == 300


def test_a_log_in_a_document_root_is_sent_to_nobody(config) -> None:
    config.write_text(CONFIG.replace("logs/one.log", "site/one.txt"))
    (config.parent / "site").chmod(0o777)
    with Hayate(config=config, user="www-data", access_log=None) as server:
        ask(server, "one.test", "/?token=secret")
        assert wait_until(lambda: len(lines(config.parent / "site" / "one.txt")) == 1)
        for host in ("one.test", "four.test"):
            assert requests.get(f"{server.url}/one.txt", headers={"Host": host}, timeout=60).status_code == 404
        assert "site/one.txt lies in the document root" in server.log()


def test_an_application_that_is_left_out_has_its_log_and_its_pages(config) -> None:
    gone = CONFIG.replace('php = "off"\naccess_log = "off"', 'worker = "gone.php"\naccess_log = "off"\nerror_pages = { 503 = "busy.html" }')
    assert gone != CONFIG
    config.write_text(gone)
    with Hayate(config=config, user="www-data", access_log=None) as server:
        assert requests.get(f"{server.url}/x?token=secret", headers={"Host": "three.test"}, timeout=60).status_code == 503
        ask(server, "four.test")
        assert wait_until(lambda: lines(config.parent / "logs" / "server.log") == [("four.test", "/", 200)])
