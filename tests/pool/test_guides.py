"""The configurations that the guides show are taken as they stand, and run PHP as a user of its own.

Each block of TOML that is a whole server (with `listen` and an application) is checked with `hayate check`, its directories below /srv made up.
"""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess

import pytest

from lib.process import temporary_directory
from lib.servers import REPOSITORY, ROOT, hayate_binary

BLOCK = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)


def servers() -> list[pytest.param]:
    found = []
    for guide in sorted((REPOSITORY / "docs").glob("*.md")):
        text = guide.read_text()
        for block in BLOCK.finditer(text):
            config = block.group(1)
            if re.search(r"^listen\b", config, re.MULTILINE) and "[[app]]" in config:
                line = text[: block.start()].count("\n") + 1
                found.append(pytest.param(guide.name, config, id=f"{guide.name}:{line}"))
    return found


def test_there_are_servers_to_check() -> None:
    assert {"symfony.md", "laravel.md", "wordpress.md", "tls.md", "deployment.md"} <= {server.values[0] for server in servers()}


@pytest.mark.skipif(not ROOT, reason="the guides' servers are started as root, and change to PHP's user")
@pytest.mark.parametrize(("guide", "config"), servers())
def test_a_guides_server(guide: str, config: str) -> None:
    directory = temporary_directory("guide")
    try:
        for root in re.findall(r'^root = "(/[^"]*)"', config, re.MULTILINE):
            place = pathlib.Path(f"{directory}{root}")
            (place / "public").mkdir(parents=True)
            for script in ("public/index.php", "public/worker.php"):
                (place / script).touch()
        path = directory / "hayate.toml"
        for log in re.findall(r'^access_log = "(/[^"]*)"', config, re.MULTILINE):
            pathlib.Path(f"{directory}{log}").parent.mkdir(parents=True, exist_ok=True)
            pathlib.Path(f"{directory}{log}").parent.chmod(0o777)
        path.write_text(re.sub(r'^(root|access_log) = "/', rf'\1 = "{directory}/', config, flags=re.MULTILINE))
        command = [hayate_binary(), "check", "--config", path]
        said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    finally:
        shutil.rmtree(directory)
    assert said.returncode == 0, said.stderr
    # A container's process is never root; all other guides begin with one who is.
    assert ("PHP runs as root" in said.stdout) == (guide == "containers.md")
