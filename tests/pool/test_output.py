"""Commands whose standard output or error cannot be written, or is not read to its end."""

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
    *([name, flag] for name in ("hayate", "hayate-lab") for flag in ("--help", "--version")),
    ["hayate", "serve", "--help"],
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


#: What ends with a reason on standard error, and its status.
REASONS = [
    (["hayate", "serve", "/nonexistent"], 2),
    (["hayate", "serve", "--config", "/nonexistent"], 2),
    (["hayate", "check", "/nonexistent"], 2),
    (["hayate", "explain", "/nonexistent"], 2),
    (["hayate", "status", "--control", "/nonexistent"], 1),
    (["hayate-lab", "report", "/nonexistent"], 2),
    (["hayate-lab", "run", "-e", "nothing-of-this-name"], 2),
]


@pytest.mark.parametrize("command", REASONS, indirect=False, ids=lambda reason: " ".join(reason[0]))
def test_a_reason_that_cannot_be_told_changes_nothing(command) -> None:
    (name, *arguments), status = command
    line = [str(hayate_binary().with_name(name)), *arguments]
    told = subprocess.run(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert told.returncode == status and told.stderr, told
    with open("/dev/full", "w") as full:
        assert subprocess.run(line, stdout=subprocess.DEVNULL, stderr=full, timeout=60, check=False).returncode == status
    reading, writing = os.pipe()
    os.close(reading)
    assert subprocess.run(line, stdout=subprocess.DEVNULL, stderr=writing, timeout=60, check=False).returncode == status
    os.close(writing)


def test_the_labs_completions_for_bash_know_its_commands() -> None:
    """As the shell asks: for words behind `hayate-lab run --`."""
    lab = hayate_binary().with_name("hayate-lab")
    script = subprocess.run([lab, "generate", "completions", "bash"], check=True, capture_output=True, text=True).stdout
    function = "$(complete -p hayate-lab | sed 's/.*-F \\([^ ]*\\) .*/\\1/')"
    asked = f'{script}\nCOMP_WORDS=(hayate-lab run --) COMP_CWORD=2\n{function} hayate-lab -- run\necho "${{COMPREPLY[@]}}"'
    words = subprocess.run(["bash", "-c", asked], check=True, capture_output=True, text=True).stdout.split()
    assert "--rounds" in words, words
    assert "guard" not in script
