"""What is left when something ends that should not: the lab, one of its guards, or both."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess

import pytest

from laboratory import SHORT, Laboratory
from lib.process import IN_VAIN, wait_until

#: nginx, and two processes that are no children of what the guard starts: one of them has a session of its own.
STRAY = """
base = "nginx-return-200"
title = "nginx with strays"
[[start]]
name = "nginx"
command = ["sh", "-c", "(sleep 300 &); setsid -f sleep 300; exec nginx -e {{ dir }}/error.log -c {{ dir }}/nginx.conf"]
"""


def loading(lab: Laboratory, engines: str) -> subprocess.Popen[str]:
    """The lab, while it loads the first of these engines for a minute at most."""
    lab.engine("stray", STRAY)
    process = lab.start("run", "status", "-e", engines, "-r", "1", "-c", "2", "-d", "60s", *SHORT,
                        "--json", "results.json")
    if not wait_until(lambda: any("--duration 60000ms" in process for process in lab.processes()), 60, 0.2):
        process.kill()
        raise AssertionError(process.communicate())
    return process


def guards(lab: Laboratory, name: str) -> list[int]:
    """Process ids of the guards whose directory has this name."""
    pattern = f" guard {lab.temporary}/hayate-lab-{name}-"
    found = subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_an_end_by_the_user_keeps_what_there_is(lab: Laboratory, end: signal.Signals) -> None:
    process = lab.start("run", "status", "-e", "php-fpm,nginx-return-200", "-r", "20", "-c", "2", "-d", "500ms",
                        *SHORT, "--json", "results.json")
    try:
        assert wait_until((lab.dir / "results.json").exists, 60, 0.1)
        process.send_signal(end)
        output, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, output + errors
    assert lab.results()["interrupted"] and "these are partial results" in output
    assert not lab.left()


def interrupt_under_load(lab: Laboratory, process: subprocess.Popen[str]) -> str:
    """What it says on standard error when it is interrupted while the next engine is under load."""
    assert wait_until(lambda: any("--duration 60000ms" in process for process in lab.processes()), IN_VAIN, 0.1)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, output + errors
    return errors


def test_nothing_survives_a_crash_of_the_lab(lab: Laboratory) -> None:
    process = loading(lab, "php-fpm")
    try:
        assert any("php-fpm: pool" in process for process in lab.processes())
    finally:
        process.kill()
        process.communicate()
    assert not lab.left()


def test_nothing_survives_the_end_of_a_guard(lab: Laboratory) -> None:
    """Its processes become the lab's, which kills them; the engine has failed, and the others are measured."""
    process = loading(lab, "stray,nginx-return-200")
    try:
        assert sum("sleep 300" in process for process in lab.processes()) == 2
        (guard,) = guards(lab, "stray")
        os.kill(guard, signal.SIGKILL)
        # The lab finds out at once; the other engine's minute is not waited for.
        assert wait_until(lambda: guards(lab, "nginx-return-200"), IN_VAIN, 0.1)
        assert not any("sleep 300" in process for process in lab.processes())
        errors = interrupt_under_load(lab, process)
    finally:
        process.kill()
    assert "was lost together with its guard" in errors
    stray, nginx = lab.results()["parts"][0]["subjects"]
    assert stray["failure"]["stage"] == "died" and nginx["measurements"]
    assert not lab.left()
    port = int(re.search(r"listen 127\.0\.0\.1:(\d+)", "".join(stray["configuration"].values()))[1])
    with socket.socket() as connection:
        assert connection.connect_ex(("127.0.0.1", port)) != 0


def test_the_generator_goes_on_with_another_guard(lab: Laboratory) -> None:
    process = loading(lab, "stray,nginx-return-200")
    try:
        (guard,) = guards(lab, "load")
        os.kill(guard, signal.SIGKILL)
        assert wait_until(lambda: guards(lab, "nginx-return-200") and guards(lab, "load"), IN_VAIN, 0.1)
        interrupt_under_load(lab, process)
    finally:
        process.kill()
    stray, nginx = lab.results()["parts"][0]["subjects"]
    assert stray["failure"]["stage"] == "load" and nginx["measurements"]
    assert not lab.left()
