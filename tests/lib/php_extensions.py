"""Extensions of PHP's that tests load by themselves, from a directory of .so files."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import subprocess

from .servers import PHP_VERSION

#: Whoever names a directory has all of it tried.
ELSEWHERE = os.environ.get("HAYATE_EXTENSIONS")


@functools.cache
def directory() -> pathlib.Path:
    """HAYATE_EXTENSIONS, or where Debian's packages have theirs, enabled or not."""
    if ELSEWHERE:
        return pathlib.Path(ELSEWHERE)
    command = [f"php-config{PHP_VERSION}", "--extension-dir"]
    return pathlib.Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())


@functools.cache
def of_the_release() -> bool:
    """Whether PHP is this Debian's own: for another one it may have no packages of them yet."""
    setup = pathlib.Path(__file__).parents[2] / "scripts/setup"
    return subprocess.run([setup, "--php-version"], check=True, capture_output=True, text=True).stdout.strip() == PHP_VERSION


@functools.cache
def loaded() -> frozenset[str]:
    """Those that PHP loads by itself, in small letters."""
    command = [f"php{PHP_VERSION}", "-r", "echo json_encode(get_loaded_extensions());"]
    return frozenset(name.lower() for name in json.loads(subprocess.run(command, check=True, capture_output=True).stdout))


def is_there(name: str) -> bool:
    return name in loaded() or (directory() / f"{name}.so").exists()


def settings(names: list[str]) -> str:
    """Lines of an ini file that load those of them that are there, and that PHP does not load by itself."""
    return "".join(f"extension={directory() / name}.so\n" for name in names if is_there(name) and name not in loaded())


def ini(name: str) -> dict[str, str]:
    """The setting that loads it, unless PHP does by itself: `gd` brings some fifty libraries, which each server of a test would map and fork with."""
    return {"extension": name} if is_there(name) and name not in loaded() else {}
