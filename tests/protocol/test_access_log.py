"""The access log, with real scripts behind it: nothing is missing after a reload, a reopening or the end."""

from __future__ import annotations

import contextlib
import json
import pathlib
import re
import signal
import socket
import time

import pytest
import requests

from lib import disk, site
from lib.process import wait_until
from lib.servers import GENERIC_WORKER, Hayate

MODES = ["classic", "worker"]


def serve(tmp_path: pathlib.Path, mode: str, **more) -> Hayate:
    worker = GENERIC_WORKER if mode == "worker" else None
    return Hayate(site.make(tmp_path), worker=worker, access_log=str(tmp_path / "access.log"), **more)


def targets(*logs: pathlib.Path) -> list[str]:
    lines = "".join(log.read_text() for log in logs).splitlines()
    return [re.search(r'"GET (\S+) HTTP/(?:1\.1|2\.0)" 200 ', line)[1] for line in lines]


@pytest.mark.parametrize("mode", MODES)
def test_every_request_is_there_after_the_end(hayate_command, tmp_path, mode) -> None:
    with serve(tmp_path, mode) as hayate:
        for i in range(20):
            assert requests.get(f"{hayate.url}/ok.php?{i}", timeout=60).ok
    # A line is written when its answer is: with several threads the next one's may come before it.
    assert sorted(targets(tmp_path / "access.log")) == sorted(f"/ok.php?{i}" for i in range(20))


@pytest.mark.parametrize("mode", MODES)
def test_rotation_and_reload_lose_no_line(hayate_command, tmp_path, mode) -> None:
    log, old = tmp_path / "access.log", tmp_path / "access.log.1"
    with serve(tmp_path, mode) as hayate:
        requests.get(f"{hayate.url}/ok.php?before", timeout=60)
        assert wait_until(lambda: targets(log) == ["/ok.php?before"])
        log.rename(old)
        hayate.process.send_signal(signal.SIGUSR1)
        assert wait_until(log.exists), "the log was not reopened"
        assert targets(old) == ["/ok.php?before"]
        requests.get(f"{hayate.url}/ok.php?after", timeout=60)
        assert wait_until(lambda: targets(log) == ["/ok.php?after"])
        # A reload opens the file anew as well, once what came before is written.
        log.rename(tmp_path / "access.log.2")
        assert hayate.reload().returncode == 0
        requests.get(f"{hayate.url}/ok.php?reloaded", timeout=60)
    assert targets(tmp_path / "access.log.2") == ["/ok.php?after"]
    assert targets(log) == ["/ok.php?reloaded"]


@pytest.mark.plain("it writes its configuration anew, without the addresses of such a run")
def test_a_reload_that_names_another_log_leaves_nothing_in_the_first(hayate_command, tmp_path) -> None:
    root = site.make(tmp_path)
    config = tmp_path / "hayate.toml"
    text = f'access_log = "{{}}.log"\n[[app]]\nroot = "{root}"\n'
    config.write_text(text.format("first"))
    with Hayate(config=config, workers=2, access_log=None) as hayate:
        requests.get(f"{hayate.url}/ok.php?1", timeout=60)
        config.write_text(text.format("second"))
        assert hayate.reload().returncode == 0
        requests.get(f"{hayate.url}/ok.php?2", timeout=60)
        assert wait_until(lambda: "?1" in (tmp_path / "first.log").read_text())
    assert targets(tmp_path / "first.log") == ["/ok.php?1"] and targets(tmp_path / "second.log") == ["/ok.php?2"]


def test_a_reload_fails_when_the_same_log_cannot_be_opened_any_more(hayate_command, tmp_path) -> None:
    """The fault: it was told of as a success, and the log went on in a file that nobody finds."""
    logs = tmp_path / "logs"
    logs.mkdir()
    with Hayate(site.make(tmp_path), access_log=str(logs / "access.log")) as hayate:
        requests.get(f"{hayate.url}/ok.php?before", timeout=60)
        logs.rename(tmp_path / "moved")
        refused = hayate.reload()
        assert refused.returncode == 1 and f"cannot open the access log {logs}/access.log" in refused.stderr, refused
        requests.get(f"{hayate.url}/ok.php?after", timeout=60)
        assert wait_until(lambda: targets(tmp_path / "moved/access.log") == ["/ok.php?before", "/ok.php?after"])
        logs.mkdir()
        assert hayate.reload().returncode == 0
        requests.get(f"{hayate.url}/ok.php?reloaded", timeout=60)
        assert wait_until(lambda: targets(logs / "access.log") == ["/ok.php?reloaded"])


def test_refusals_are_there_like_answers(hayate_command, tmp_path) -> None:
    args = ["--queue-limit", "1", "--queue-timeout", "1s", "--access-log-format", "json"]
    with serve(tmp_path, "classic", workers=1, args=args) as hayate:
        for path in ("/nowhere", "/x%00", "/crash.php"):
            requests.get(hayate.url + path, timeout=60)
        requests.post(hayate.url + "/plain.txt", data=b"x", timeout=60)
    lines = [json.loads(line) for line in (tmp_path / "access.log").read_text().splitlines()]
    assert {(line["target"], line["status"]) for line in lines} == {
        ("/nowhere", 404),
        ("/x%00", 400),
        ("/crash.php", 502),
        ("/plain.txt", 405),
    } and len(lines) == 4
    assert all(line["user_agent"].startswith("python-requests") for line in lines)


def test_a_full_disk_is_said_once_and_stops_nobody(hayate_command, tmp_path) -> None:
    with Hayate(site.make(tmp_path), workers=1, access_log="/dev/full") as hayate:
        for i in range(3):
            assert requests.get(f"{hayate.url}/ok.php?{i}", timeout=60).text == f"ok {i}"
            time.sleep(1.1)
        assert hayate.logged("lines of the access log were lost") and hayate.logged("No space left")
        assert hayate.log().count("the access log /dev/full cannot be written") == 1

def test_no_line_is_cut_by_a_disk_that_is_full_for_a_while(hayate_command, tmp_path) -> None:
    """What the last line still wanted comes once there is room. Each line is whole, and those that are not there are counted."""
    with disk.small(tmp_path / "disk", "64k") as place:
        log = place / "access.log"
        args = ["--access-log-format", "json"]
        with Hayate(site.make(tmp_path), workers=1, access_log=str(log), args=args) as hayate, requests.Session() as client:
            asked = 0
            for _ in range(3):
                with (place / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
                    while filler.write(b"x" * 1024):
                        pass
                # Each of them some 200 bytes: the last one before the page's end is cut.
                for _ in range(60):
                    assert client.get(f"{hayate.url}/ok.php?{asked}", timeout=60).status_code == 200
                    asked += 1
                time.sleep(1.2)
                (place / "filler").unlink()
                for _ in range(5):
                    client.get(f"{hayate.url}/ok.php?{asked}", timeout=60)
                    asked += 1
                time.sleep(1.2)
            lost = int(re.search(r"hayate_access_log_lost_total (\d+)", hayate.metrics())[1])
            assert hayate.log().count("lines of the access log were lost") == 1, "once a minute"
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        assert 0 < lost < asked and len(lines) + lost == asked, (len(lines), lost, asked)


@pytest.mark.plain("the kernel sends files on plain connections only")
def test_bytes_of_an_answer_that_is_cut_while_the_kernel_sends_a_file(hayate_command, tmp_path) -> None:
    """The client takes nothing; what it then finds in its own socket was sent, and is in the log."""
    root = site.make(tmp_path)
    (root / "file.bin").write_bytes(b"x" * 8_000_000)
    log = tmp_path / "access.log"
    config = f'[limits]\nwrite_timeout = "2s"\n[[app]]\nroot = "{root}"\nworkers = 1\n'
    with Hayate(config=config, access_log=str(log)) as hayate:
        requests.get(f"{hayate.url}/file.bin", timeout=60)
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 100_000)
            client.settimeout(60)
            client.connect(("127.0.0.1", hayate.port))
            client.sendall(b"GET /file.bin?cut HTTP/1.1\r\nHost: a\r\n\r\n")
            assert wait_until(lambda: "/file.bin?cut" in log.read_text())
            got = bytearray()
            with contextlib.suppress(OSError):
                while block := client.recv(65536):
                    got += block
        body = len(got.partition(b"\r\n\r\n")[2])
        (line,) = [line for line in log.read_text().splitlines() if "/file.bin?cut" in line]
        logged = int(line.split('"')[2].split()[1])
        assert 0 < body <= logged < 8_000_000 and logged % (256 << 10) != 0, (body, logged)
