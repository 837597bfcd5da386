"""`hayate-lab load`: what its flags do, what it prints, what it says when it cannot; against real servers."""

from __future__ import annotations

import collections
import json
import os
import pathlib
import pty
import re
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from generator import Nginx, Stalling, generator, load, run, silent, start
from lib.process import stop_process
from lib.servers import NginxFpm


@pytest.fixture(scope="module")
def nginx() -> Iterator[Nginx]:
    generator()
    with Nginx() as server:
        yield server


def test_requests_connections_and_bytes_are_counted(nginx: Nginx) -> None:
    report = load(f"{nginx.url}/file", "-n", "6000", "-c", "3")
    total = report["total"]
    assert (total["requests"], total["ok"], total["ok_percent"], total["errors"]) == (6000, 6000, 100, {})
    assert total["statuses"] == {"200": 6000}
    # Of so many each connection has some: of a few hundred two can be done with all before the third is there.
    assert report["health"]["connections_opened"] == 3
    assert 6000 * 10_000 < total["bytes_received"] < 6000 * 10_500
    assert report["plan"] == {"form": "closed", "connections": 3, "duration": None, "requests": 6000}


def test_the_report_for_people_has_all_that_was_asked_for(nginx: Nginx) -> None:
    text, errors = run(nginx.url, "-n", "500")
    assert errors == ""
    assert re.search(r"^requests +500 in [\d.]+ s$", text, re.M)
    assert re.search(r"^rate +[\d,.]+ requests/s$", text, re.M)
    assert re.search(r"^OK +100 %, 500$", text, re.M)
    assert re.search(r"^received +[\d.]+ KiB", text, re.M)
    assert re.search(r"^latency, ms +50 % +80 % +90 % +95 % +99 % +99.9 % +max", text, re.M)
    assert re.search(r"^generator +\d threads?, busy", text, re.M)


def test_a_schedule_is_reported_by_phase_and_second(nginx: Nginx) -> None:
    report = load(nginx.url, "--schedule", "line(1, 99, 1s) const(100, 1s) step(50, 150, 100, 500ms)")
    assert report["plan"]["shots"] == 50 + 100 + 25 + 75 == report["total"]["ok"]
    phases = [(phase["phase"], phase["shots"], phase["figures"]["ok"]) for phase in report["phases"]]
    assert phases == [("line(1,99,1s)", 50, 50), ("const(100,1s)", 100, 100), ("const(50,0.5s)", 25, 25),
                      ("const(150,0.5s)", 75, 75)]  # fmt: skip
    assert [second["second"] for second in report["seconds"]] == list(range(len(report["seconds"])))
    assert [round(second["intended_rate"]) for second in report["seconds"][:2]] == [50, 100]
    assert report["duration"] > 2.9
    text, _ = run(nginx.url, "--schedule", "const(50, 200ms) const(100, 200ms)")
    assert re.search(r"^const\(50,0.2s\) +10 +100 ", text, re.M) and "open loop" in text


def test_threads_with_ramp_up_and_loops(nginx: Nginx) -> None:
    report = load(nginx.url, "--threads", "20", "--ramp-up", "1s", "--loops", "10")
    assert (report["total"]["ok"], report["health"]["connections_opened"]) == (200, 20)
    # The last of twenty starts after 19/20 of the ramp-up.
    assert report["duration"] >= 0.95


def test_method_headers_and_body(nginx: Nginx, tmp_path: pathlib.Path) -> None:
    def good(pattern: str, *arguments: str) -> None:
        report = load(f"{nginx.url}/echo", "-n", "5", "--expect-match", pattern, *arguments)
        assert report["total"]["ok"] == 5

    good("^GET  $")
    good("^DELETE yes $", "-X", "DELETE", "-H", "X-Test: yes")
    good("^POST  7$", "--body", "a=1&b=2")
    (tmp_path / "body").write_bytes(b"x" * 5000)
    good("^PUT  5000$", "--method", "PUT", "--body-file", str(tmp_path / "body"))


def test_a_file_of_urls(nginx: Nginx, tmp_path: pathlib.Path) -> None:
    urls = tmp_path / "urls.txt"
    urls.write_text(f"# three of them\n/\n\nGET /missing\n{nginx.url}/file\n")
    report = load(nginx.url, "-n", "30", "--urls", str(urls))
    assert report["total"]["statuses"] == {"200": 20, "404": 10}
    report = load(nginx.url, "-n", "300", "--urls", "-", "--random", stdin="/\n/missing\n")
    assert 100 < report["total"]["statuses"]["404"] < 200


def test_expectations_decide_what_is_ok_and_the_exit_status(nginx: Nginx) -> None:
    assert load(f"{nginx.url}/missing", "-n", "5", status=1)["total"]["errors"] == {"status": 5}
    assert load(f"{nginx.url}/missing", "-n", "5", "--expect-status", "404")["total"]["ok"] == 5
    assert load(nginx.url, "-n", "5", "--expect-body", '"OK"')["total"]["ok"] == 5
    report = load(nginx.url, "-n", "5", "--expect-body", "Fatal error", status=1)
    assert report["total"]["errors"] == {"body": 5}
    # Some bad answers fail the command only if somebody said what is good.
    both = {"stdin": "/\n/missing\n"}
    assert load(nginx.url, "-n", "4", "-u", "-", **both)["total"]["ok"] == 2
    assert load(nginx.url, "-n", "4", "-u", "-", "--expect-status", "200", status=1, **both)["total"]["ok"] == 2


def test_each_virtual_user_has_a_php_session_of_its_own(tmp_path: pathlib.Path) -> None:
    tmp_path.chmod(0o777)
    for directory in list(tmp_path.parents)[:3]:
        directory.chmod(directory.stat().st_mode | 0o055)
    (tmp_path / "index.php").write_text(
        "<?php session_start(); $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1;"
        f"file_put_contents('{tmp_path}/seen', session_id() . ' ' . $_SESSION['n'] . \"\\n\", FILE_APPEND | LOCK_EX);"
    )
    with NginxFpm(tmp_path, ini={"session.save_path": str(tmp_path)}) as server:
        load(f"{server.url}/index.php", "--threads", "4", "--loops", "6", "--cookies")
        seen = collections.defaultdict(list)
        for line in (tmp_path / "seen").read_text().splitlines():
            session, number = line.split()
            seen[session].append(int(number))
        assert list(seen.values()) == [[1, 2, 3, 4, 5, 6]] * 4
        (tmp_path / "seen").unlink()
        load(f"{server.url}/index.php", "--threads", "2", "--loops", "3")
        assert len(set((tmp_path / "seen").read_text().splitlines())) == 6, "without cookies each visit is a new one"


def test_time_outs_and_refused_connections_are_counted_by_kind() -> None:
    with silent() as url:
        report = load(url, "-n", "3", "-c", "3", "--timeout", "300ms", status=1)
        assert report["total"]["errors"] == {"timeout": 3}
        assert report["total"]["latency_ms"]["p50"] > 299
    text, _ = run(url, "-n", "3", status=1)
    assert re.search(r"^errors +3 refused: connection refused$", text, re.M)
    assert re.search(r"^OK +0 %, 0$", text, re.M)


def test_a_new_connection_for_each_request(nginx: Nginx) -> None:
    assert load(nginx.url, "-n", "20", "--no-keepalive")["health"]["connections_opened"] == 20


def test_it_agrees_with_wrk_about_what_a_server_can_do(nginx: Nginx) -> None:
    """nginx serves 500 requests a second at most; test_load_proof.py sets it no limit. Both load it at the same time, so they have the same of it,
    however much the machine has to do."""
    url = f"{nginx.url}/500-per-second"

    def agrees(client: str) -> bool:
        process = subprocess.Popen(["wrk", "-t1", "-c50", "-d4s", url], stdout=subprocess.PIPE, text=True)
        total = load(url, "-c", "50", "-d", "4s", "--client", client)["total"]
        wrk = process.communicate(timeout=60)[0]
        by_wrk = float(re.search(r"Requests/sec: +([\d.]+)", wrk)[1])
        measured.append((client, by_wrk, total["rate"], total["latency_ms"]["mean"]))
        # Fifty at a time: how many come in a second, and how long each takes (Little's law).
        return total["rate"] == pytest.approx(by_wrk, rel=0.15) and total["rate"] * total["latency_ms"]["mean"] == pytest.approx(50_000, rel=0.1)

    # What else the machine does may disturb one; a generator that counts wrongly never agrees.
    measured: list[tuple] = []
    for client in "lean", "hyper":
        assert any(agrees(client) for _ in range(10)), measured


def test_a_stall_shows_in_the_open_loop_as_theory_says_and_not_in_the_closed_one() -> None:
    """0.5 s in every 2.5: a fifth of the shots meet it, spread evenly over it."""
    theory = {"p90": 250, "p95": 375, "p99": 475, "max": 500}
    with Stalling(period=2.5, stall=0.5) as server:
        for _ in range(5):
            server.begin()
            report = load(server.url, "--schedule", "const(200, 5s)")
            open_loop = report["total"]["latency_ms"]
            # A machine that has other things to do delays answers; nothing makes them come before the stall is over.
            assert all(open_loop[name] > expected - 30 for name, expected in theory.items()), open_loop
            server.begin()
            closed = load(server.url, "-c", "5", "-d", "2500ms")["total"]["latency_ms"]
            as_it_should = open_loop["p50"] < 100 and all(open_loop[name] < expected + 500 for name, expected in theory.items())
            if as_it_should and closed["p99"] < 100 and closed["max"] > 400:
                break
            # Whoever else had the processor kept the server from waking up in time, or the generator from sending.
            assert server.late > 0.05 or report["health"]["delay_ms"]["p99"] > 50, (open_loop, closed, server.late, report["health"])


def test_a_generator_that_was_held_up_says_so(nginx: Nginx) -> None:
    process = start(nginx.url, "--schedule", "const(200, 3s)", "--generator-threads", "1", "--json", "--progress", "lines")
    assert process.stderr is not None
    process.stderr.readline()  # after a second
    stop_process(process.pid)
    time.sleep(0.8)
    process.send_signal(signal.SIGCONT)
    output, _ = process.communicate(timeout=60)
    report = json.loads(output)
    total = report["total"]
    # Of 600 shots, 160 were due while it stood still; none is left out, all are late, and it is not the server's doing.
    assert total["requests"] == 600
    assert total["late_generator"] >= 150
    assert total["latency_ms"]["p90"] > 200 and report["health"]["delay_ms"]["p90"] > 200
    assert total["service_ms"]["p90"] < total["latency_ms"]["p90"] - 200
    assert any("the generator sent" in warning for warning in report["warnings"]), report["warnings"]


def test_progress_is_a_line_each_second_or_one_that_changes(nginx: Nginx) -> None:
    _, errors = run(nginx.url, "--schedule", "const(100, 2s)", "--progress", "lines")
    lines = errors.splitlines()
    assert len(lines) in (2, 3) and lines[0].startswith("1/2 s  ") and "/s of 100 planned" in lines[0], errors
    assert run(nginx.url, "-n", "10")[1] == "", "nobody looks"
    terminal, ours = pty.openpty()
    process = start(nginx.url, "-c", "2", "-d", "2500ms", stderr=ours)
    os.close(ours)
    shown = b""
    try:
        while piece := os.read(terminal, 4096):
            shown += piece
    except OSError:  # the terminal has no other end any more
        pass
    os.close(terminal)
    output, _ = process.communicate(timeout=60)
    assert shown.count(b"\r\x1b[K") >= 3 and b"p99" in shown and b"\n" not in shown
    assert "requests" in output


@pytest.mark.parametrize("sent, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_load_prints_what_it_has(nginx: Nginx, sent: int, status: int) -> None:
    process = start(nginx.url, "--schedule", "const(100, 60s)", "--json", "--progress", "lines")
    assert process.stderr is not None
    process.stderr.readline()
    process.send_signal(sent)
    output, _ = process.communicate(timeout=60)
    report = json.loads(output)
    assert process.returncode == status
    assert report["interrupted"] and 50 <= report["total"]["ok"] < 1000
    assert report["total"]["requests"] + report["health"]["unfinished"] + report["health"]["unsent"] == 6000


def test_json_goes_to_a_file_beside_the_text(nginx: Nginx, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "report.json"
    text, _ = run(nginx.url, "-n", "10", f"--json={file}")
    assert json.loads(file.read_text())["total"]["ok"] == 10
    assert text.startswith("closed loop: 10 connections, 10 requests")


def test_a_file_that_cannot_be_written_is_found_out_before_the_load(nginx: Nginx, tmp_path: pathlib.Path) -> None:
    began = time.monotonic()
    for file, why in [(tmp_path / "no" / "x", f"there is no folder {tmp_path}/no"), (tmp_path, "cannot be written")]:
        text, errors = run(nginx.url, "-d", "60s", f"--json={file}", status=2)
        assert not text and f"{file}: {why}" in errors
    assert time.monotonic() - began < 30
    # One that only turns out in the end takes nothing else along.
    text, errors = run(nginx.url, "-n", "10", "--json=/dev/full", status=2)
    assert text.startswith("closed loop: 10 connections, 10 requests")
    assert "the report was not written: /dev/full: No space left on device" in errors
    text, errors = run(nginx.url, "-n", "10", f"--json={tmp_path}/kept", status=2, prefix=["sh", "-c", 'exec "$@" > /dev/full', "sh"])
    assert "standard output" in errors and json.loads((tmp_path / "kept").read_text())["total"]["ok"] == 10


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["http://127.0.0.1:1/", "--schedule", "const(1, 1s) cons(1, 1s)"], "unknown phase 'cons'"),
        (["http://127.0.0.1:1/", "--schedule", "const(1, 1s) cons(1, 1s)"], "               ^^^^\n"),
        (["http://127.0.0.1:1/", "--schedule", "line(1, 2)"], "line(from, to, duration)"),
        (["http://127.0.0.1:1/", "--schedule", "const(1, 1s)", "-n", "5"], "cannot be used with"),
        (["http://127.0.0.1:1/", "--threads", "5"], "--loops"),
        (["http://127.0.0.1:1/", "--duration", "5 parsecs"], "5 parsecs\n    ^"),
        (["http://127.0.0.1:1/", "-c", "0"], "invalid value '0'"),
        (["http://127.0.0.1:1/", "--expect-status", "2x"], "'2x' is not a status"),
        (["http://127.0.0.1:1/", "--expect-match", "("], "unclosed group"),
        (["http://127.0.0.1:1/", "-H", "nonsense"], "a header is 'Name: value'"),
        (["http://127.0.0.1:1/", "--urls", "/nowhere"], "/nowhere: cannot read the URLs"),
        (["ftp://127.0.0.1/"], "not an http:// or https:// URL"),
        (["http://nowhere.invalid/"], "nowhere.invalid"),
        (["http://127.0.0.1:1/", "-n", "5", "--timeout", "0"], "time-out of 0"),
    ],
)
def test_what_cannot_be_done_is_said_with_the_place(arguments: list[str], message: str) -> None:
    output, errors = run(*arguments, status=2)
    assert message in errors and output == "", errors


def test_a_limit_of_descriptors_is_raised_or_named(nginx: Nginx) -> None:
    soft = ["/usr/bin/prlimit", "--nofile=50:300"]
    assert load(nginx.url, "-n", "400", "-c", "200", prefix=soft)["total"]["ok"] == 400
    _, errors = run(nginx.url, "-n", "400", "-c", "250", prefix=soft, status=2)
    assert "250 connections need 314 descriptors, and this process may have 300" in errors


def test_a_reader_that_leaves_is_no_error(nginx: Nginx) -> None:
    command = f"{generator()} load {nginx.url} -n 10; echo $? >&2"
    done = subprocess.run(f"({command}) | true", shell=True, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == "0\n"
