"""php-src's tests, from the newest Debian source package of PHP that the mirror really holds, or from an archive at hand.

Promises to leave the system's apt alone: sources, lists and archives of its own lie in the given directory. It needs no
privileges. Must never patch a test.
"""

from __future__ import annotations

import functools
import os
import pathlib
import re
import shutil
import subprocess


class SourceError(RuntimeError):
    """The source could not be had; the text says what was tried and what to do."""


def _run(command: list[str], cwd: pathlib.Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, timeout=600, check=False
    )


def _configure_apt(directory: pathlib.Path) -> dict[str, str]:
    """A private apt configuration: the system's own archives, asked for sources. Returns the environment for it."""
    for folder in ("sources", "lists/partial", "cache/archives/partial"):
        (directory / folder).mkdir(parents=True, exist_ok=True)
    system = pathlib.Path("/etc/apt")
    for file in (system / "sources.list", *sorted((system / "sources.list.d").glob("*"))):
        if not file.is_file():
            continue
        text = file.read_text()
        if file.suffix == ".sources":
            text = re.sub(r"(?m)^Types:.*$", "Types: deb-src", text)
        elif file.suffix == ".list":
            text = "\n".join("deb-src " + archive for archive in re.findall(r"(?m)^deb\s+(.*)$", text))
        else:
            continue
        (directory / "sources" / file.name).write_text(text + "\n")
    configuration = directory / "apt.conf"
    configuration.write_text(
        f'Dir::Etc::SourceList "/dev/null";\n'
        f'Dir::Etc::SourceParts "{directory}/sources";\n'
        f'Dir::State::Lists "{directory}/lists";\n'
        f'Dir::Cache "{directory}/cache";\n'
        # The unprivileged download user may not enter this directory.
        f'APT::Sandbox::User "";\n'
    )
    return {"APT_CONFIG": str(configuration)}


def _newest_first(versions: set[str]) -> list[str]:
    def compare(a: str, b: str) -> int:
        if a == b:
            return 0
        return 1 if subprocess.run(["dpkg", "--compare-versions", a, "gt", b], check=False).returncode == 0 else -1

    return sorted(versions, key=functools.cmp_to_key(compare), reverse=True)


def _version_of(tree: pathlib.Path) -> str | None:
    """What php-src says it is; None where this is no php-src."""
    header = tree / "main" / "php_version.h"
    found = re.search(r'(?m)^#define PHP_VERSION "([0-9A-Za-z.-]+)"$', header.read_text()) if header.is_file() else None
    return found[1] if found else None


def given_source(cache: pathlib.Path, given: pathlib.Path) -> tuple[str, pathlib.Path]:
    """(version, tree) of php-src at hand: its tree, or an archive as PHP and Debian give it out, which is unpacked."""
    if given.is_dir():
        version = _version_of(given)
        if version is None:
            raise SourceError(f"{given}: expected the tree of php-src, found no main/php_version.h")
        return version, given
    cache.mkdir(parents=True, exist_ok=True)
    parts = cache / "unpacked"
    shutil.rmtree(parts, ignore_errors=True)
    parts.mkdir()
    untarred = _run(["tar", "--no-same-owner", "-xf", str(given.absolute())], parts, {})
    trees = [(version, tree) for tree in parts.iterdir() if (version := _version_of(tree))]
    if untarred.returncode != 0 or not trees:
        raise SourceError(f"{given}: expected an archive of php-src: {untarred.stderr.strip() or 'it holds no */main/php_version.h'}")
    version, made = trees[0]
    tree = cache / f"php-src-{version}"
    shutil.rmtree(tree, ignore_errors=True)
    made.rename(tree)
    shutil.rmtree(parts)
    # Some files of a release are their maker's alone to read; the tests run as another user.
    _run(["chmod", "-R", "a+rX", str(tree)], cache, {})
    return version, tree


def php_source(cache: pathlib.Path, package: str) -> tuple[str, pathlib.Path]:
    """(version, unpacked tree) of a source package, fetched by `apt-get source` on first use, or of a path to php-src.

    An archive's index may name a version whose files the mirror does not hold, so each is tried, newest first.
    """
    if "/" in package or ".tar" in package:
        return given_source(cache, pathlib.Path(package))
    done = cache / f"{package}.version"
    if done.exists():
        version = done.read_text().strip()
        tree = cache / f"{package}-{version}"
        if tree.is_dir():
            return version, tree
    for program in ("apt-get", "dpkg-source"):
        if shutil.which(program) is None:
            raise SourceError(f"{program} is missing: apt-get install dpkg-dev")
    cache.mkdir(parents=True, exist_ok=True)
    env = _configure_apt(cache / "apt")
    update = _run(["apt-get", "update"], cache, env)
    listed = _run(["apt-cache", "madison", package], cache, env)
    versions = {line.split("|")[1].strip() for line in listed.stdout.splitlines() if line.count("|") == 2}
    refused = []
    for version in _newest_first(versions):
        download = cache / "download"
        shutil.rmtree(download, ignore_errors=True)
        download.mkdir()
        fetched = _run(["apt-get", "source", "--only-source", f"{package}={version}"], download, env)
        trees = [path for path in download.iterdir() if path.is_dir()]
        if fetched.returncode == 0 and trees:
            tree = cache / f"{package}-{version}"
            shutil.rmtree(tree, ignore_errors=True)
            trees[0].rename(tree)
            shutil.rmtree(download)
            done.write_text(version + "\n")
            return version, tree
        refused.append(f"{version}: {fetched.stderr.strip().splitlines()[-1:]}")
    raise SourceError(
        f"no source of {package} could be fetched; is there a Debian archive in /etc/apt/sources.list.d?\n"
        + "\n".join(refused or [update.stderr, listed.stderr])
    )
