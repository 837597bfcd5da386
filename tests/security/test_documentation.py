"""Tests that docs/security.md names are there."""

from __future__ import annotations

import re

from lib.servers import REPOSITORY


def test_every_named_test_exists() -> None:
    text = (REPOSITORY / "docs/security.md").read_text()
    file, named, missing = "", 0, []
    for path, name in re.findall(r"`([\w/]+\.py)?(?:::(test_\w+))?`", text):
        file = path or file
        at = REPOSITORY / "tests" / file
        if not (path or name):
            continue
        named += 1
        if not at.is_file() or (name and f"def {name}(" not in at.read_text()):
            missing.append(f"{file}::{name}")
    assert not missing and named > 60, (named, missing)
    file, named, missing = "", 0, []
    for path, name in re.findall(r"`([\w/]+\.rs)?(?:::(\w+))?`", text):
        file = path or file
        at = REPOSITORY / "crates" / file
        # Of Python there are names alone as well, which begin with test_.
        if not (path or name) or name.startswith("test_"):
            continue
        # `pool/src/renewal.rs` or, where it is clear whose, `renewal.rs`.
        if path and "/" not in path:
            continue
        named += 1
        if not at.is_file() or (name and f"fn {name}(" not in at.read_text()):
            missing.append(f"{file}::{name}")
    assert not missing and named > 15, (named, missing)
    crates = re.findall(r"`((?:front|ring|http|pool)/tests/[\w/]+\.rs)`", text)
    assert crates and all((REPOSITORY / "crates" / path).is_file() for path in crates), crates
