"""File systems of a test's own, to be full."""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
from collections.abc import Iterator

import pytest


@contextlib.contextmanager
def small(directory: pathlib.Path, size: str) -> Iterator[pathlib.Path]:
    """One of `size` (`64k`, `2m`) at `directory`, which is made. Skips the test where nothing can be mounted."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    directory.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=1777", "tmpfs", directory], check=False, capture_output=True, text=True)
    if mount.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mount.stderr.strip()}")
    try:
        yield directory
    finally:
        # Somebody may still have a file of it open.
        subprocess.run(["umount", "-l", directory], check=False)
