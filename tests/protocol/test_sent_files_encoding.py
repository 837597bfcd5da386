"""A file that a script has sent (X-Accel-Redirect) says itself how its bytes are encoded, whatever the script has said of its own answer."""

from __future__ import annotations

import gzip

import pytest
import requests

from lib import site
from lib.servers import Hayate

TEXT = b"a line that repeats itself\n" * 3000


@pytest.fixture
def server(hayate_command, tmp_path):
    root = site.make(tmp_path)
    (root / "long.txt").write_bytes(TEXT)
    (root / "ready.txt").write_bytes(TEXT)
    (root / "ready.txt.gz").write_bytes(gzip.compress(TEXT))
    (root / "handler.php").write_text(
        "<?php ob_start('ob_gzhandler'); header('X-Accel-Redirect: /' . $_GET['file']); echo 'thrown away';"
    )
    (root / "plain.php").write_text(
        "<?php header('Content-Encoding: identity'); header('ETag: \"v1\"'); header('Vary: Cookie'); header('X-Accel-Redirect: /' . $_GET['file']);"
    )
    for path in root.iterdir():
        path.chmod(0o755 if path.is_dir() else 0o644)
    config = f"[[app]]\nroot = '{root}'\nsendfile_roots = []\nworkers = 1\n"
    with Hayate(config=config) as server:
        yield server


@pytest.mark.parametrize("file", ["long.txt", "ready.txt"])
@pytest.mark.parametrize("script", ["handler.php", "plain.php"])
@pytest.mark.parametrize("accept", ["gzip", "identity"])
def test_the_bytes_are_what_the_answer_says(server, script: str, file: str, accept: str) -> None:
    answer = requests.get(f"{server.url}/{script}?file={file}", headers={"Accept-Encoding": accept}, timeout=60)
    assert answer.status_code == 200
    assert answer.content == TEXT, "decoded as it says"
    assert answer.headers.get("Content-Encoding") == ("gzip" if accept == "gzip" else None)
    assert "accept-encoding" in answer.headers["Vary"].lower() and answer.headers["ETag"] != '"v1"'
