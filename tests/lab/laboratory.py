"""The command `hayate-lab` as the tests of this folder run it."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from lib.process import temporary_directory
from lib.servers import hayate_binary

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
#: The same for every run here: short, and with few processes.
SHORT = ["--warm-up", "0.2s", "--workers", "2"]


class Laboratory:
    """A copy of the lab's data that a test may change, and a directory for everything temporary."""

    def __init__(self, command: pathlib.Path, directory: pathlib.Path) -> None:
        self.command = command
        self.dir = directory
        self.data = directory / "lab"
        self.temporary = directory / "tmp"
        #: What the fixture of a test had it print.
        self.printed = ""
        self.temporary.mkdir()
        self.temporary.chmod(0o755)
        shutil.copytree(REPOSITORY / "lab", self.data)

    def engine(self, name: str, text: str) -> None:
        """Adds an engine."""
        (self.data / "engines" / f"{name}.toml").write_text(text)

    def start(self, *arguments: str, stderr: int = subprocess.PIPE) -> subprocess.Popen[str]:
        """Starts the command."""
        environment = {
            **os.environ,
            "HAYATE_LAB": str(self.data),
            "HAYATE_BIN": str(hayate_binary()),
            "TMPDIR": str(self.temporary),
        }
        return subprocess.Popen(
            [self.command, *arguments],
            cwd=self.dir,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )

    def run(self, *arguments: str, status: int | None = 0) -> str:
        """Runs the command to its end and gives back what it printed, errors last; `status` None: however it ends."""
        process = self.start(*arguments)
        try:
            output, errors = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        assert status is None or process.returncode == status, f"status {process.returncode}\n{output}\n{errors}"
        assert not self.left(), "something was left behind"
        return output + errors

    def results(self, name: str = "results.json") -> Any:
        """The JSON that a run wrote."""
        return json.loads((self.dir / name).read_text())

    def processes(self) -> list[str]:
        """Command lines of the processes that work below the temporary directory, or for the lab."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                about = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
                # php-fpm writes its title over both.
                about += os.readlink(entry / "cwd").encode()
                if str(self.temporary).encode() in about:
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
        return found

    def left(self, patience: float = 10) -> list[str]:
        """What is still there some seconds after the lab ended: processes and directories."""
        end = time.monotonic() + patience
        while True:
            left = self.processes() + [str(path) for path in self.temporary.iterdir()]
            if not left or time.monotonic() > end:
                return left
            time.sleep(0.1)


def laboratory() -> Iterator[Laboratory]:
    """The command is $HAYATE_LAB_BIN, else the one beside the hayate command."""
    command = pathlib.Path(os.environ.get("HAYATE_LAB_BIN") or hayate_binary().parent / "hayate-lab")
    if not command.exists():
        pytest.skip(f"{command} is not built")
    directory = temporary_directory("labtest")
    lab = Laboratory(command, directory)
    try:
        yield lab
    finally:
        shutil.rmtree(directory, ignore_errors=True)
