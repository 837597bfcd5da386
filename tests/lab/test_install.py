"""`make install`: what is installed works without the checkout."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from laboratory import REPOSITORY, SHORT
from lib.process import temporary_directory
from lib.servers import hayate_binary


@pytest.fixture(scope="module")
def prefix() -> Iterator[pathlib.Path]:
    """An installation of what was built."""
    built = hayate_binary().parent
    if not (built / "hayate-lab").exists():
        pytest.skip(f"{built}/hayate-lab is not built")
    directory = temporary_directory("installed")
    try:
        command = ["make", "-C", REPOSITORY, "install", f"RELEASE={built}", f"PREFIX={directory}",
                   f"SYSCONFDIR={directory}/etc"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def run(prefix: pathlib.Path, *arguments: str) -> str:
    """The installed command, in a directory that is no checkout, without variables that say where things are."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HAYATE_")}
    done = subprocess.run([prefix / "bin/hayate-lab", *arguments], cwd=prefix / "etc", env=environment,
                          capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_all_parts_are_installed(prefix: pathlib.Path) -> None:
    for command in ("hayate", "hayate-lab"):
        for file in (f"bin/{command}", f"share/man/man1/{command}.1", f"share/bash-completion/completions/{command}",
                     f"share/zsh/site-functions/_{command}", f"share/fish/vendor_completions.d/{command}.fish"):
            assert (prefix / file).stat().st_size > 500, file
    assert (prefix / "share/man/man1/hayate-lab-reproduce.1").exists()
    source, installed = REPOSITORY / "lab", prefix / "share/hayate/lab"
    files = {path.relative_to(source) for path in source.rglob("*") if path.is_file()}
    assert files == {path.relative_to(installed) for path in installed.rglob("*") if path.is_file()}


def test_links_of_the_installed_documentation_lead_somewhere(prefix: pathlib.Path) -> None:
    docs = prefix / "share/doc/hayate"
    links = [(file, link) for file in docs.rglob("*.md") for link in re.findall(r"\]\(([^)#\s]+)", file.read_text())]
    assert len(links) > 100
    assert not [(file, link) for file, link in links if "://" not in link and not (file.parent / link).exists()]


def test_the_installed_lab_measures_the_installed_server(prefix: pathlib.Path) -> None:
    engines = {engine["name"]: engine for engine in json.loads(run(prefix, "engines", "--json"))}
    assert engines["hayate-classic"]["ready"] and "page" in engines["hayate-recognised"]["workloads"]
    names = ["hayate-recognised", "php-fpm"]
    output = prefix / "results.json"
    run(prefix, "run", "info", "-e", ",".join(names), "-r", "1", "-d", "200ms", *SHORT, "--json", str(output))
    subjects = json.loads(output.read_text())["parts"][0]["subjects"]
    assert [subject["name"] for subject in subjects if subject["measurements"]] == names
    assert subjects[0]["configuration"]["command 1"].startswith(f"{prefix}/bin/hayate serve")
    assert "bench" in run(prefix, "reproduce")
