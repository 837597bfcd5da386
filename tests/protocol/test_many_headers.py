"""More response headers than an answer can hold: 500 with a reason, at once, and the worker serves on."""

from __future__ import annotations

import pytest
import requests

from lib import site
from lib.servers import Hayate

SCRIPT = """<?php for ($i = 0; $i < (int) $_GET['n']; $i++) { header($_GET['same'] ? "X-A: $i" : "X-$i: y", !$_GET['same']); }
if ($_GET['remove']) { header_remove(); header('X-Last: 1'); } echo 'done';"""


@pytest.mark.parametrize("same", ["", "1"])
def test_forty_thousand_headers_are_an_error_at_once(hayate_command, tmp_path, same) -> None:
    root = site.make(tmp_path)
    (root / "headers.php").write_text(SCRIPT)
    with Hayate(root, workers=1) as server:

        def get(n: int, remove: str = "") -> requests.Response:
            return requests.get(f"{server.url}/headers.php", params={"n": n, "same": same, "remove": remove}, timeout=30)

        assert get(80).status_code == 200
        # A worker that compares each with all before it needs a minute or more.
        assert get(40_000).status_code == 500
        assert server.logged("The response's headers are larger than")
        removed = get(40_000, "1")
        assert (removed.status_code, removed.headers["X-Last"], removed.text) == (200, "1", "done")
        assert get(10).status_code == 200
