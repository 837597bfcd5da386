"""Commands whose standard output cannot be written, or is not read to its end."""

from __future__ import annotations

import os
import subprocess

import pytest

from lib.servers import REPOSITORY, hayate_binary

COMMANDS = [
    ["hayate", "version"],
    ["hayate", "check", str(REPOSITORY / "demo")],
    *(["hayate", "generate", what] for what in ("man", "configuration", "man-configuration")),
    *(["hayate", "generate", "completions", shell] for shell in ("bash", "zsh", "fish")),
    ["hayate-lab", "generate", "completions", "bash"],
    ["hayate-lab", "ladder"],
    ["hayate-lab", "reproduce"],
    ["hayate-lab", "engines"],
    ["hayate-lab", "engines", "--json"],
]


@pytest.fixture(params=COMMANDS, ids=" ".join)
def command(request: pytest.FixtureRequest) -> list[str]:
    name, *arguments = request.param
    return [str(hayate_binary().with_name(name)), *arguments]


def run(command: list[str], stdout: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60, check=False)


def test_a_disk_that_is_full_is_an_error_of_one_line(command) -> None:
    with open("/dev/full", "w") as full:
        done = run(command, full.fileno())
    assert done.returncode in (1, 2)
    assert "No space left on device" in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_who_has_read_enough_hears_nothing(command) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = run(command, writing)
    finally:
        os.close(writing)
    assert done.stderr == ""
