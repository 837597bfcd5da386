"""HTTP/2: who is answered before the body was read gets the answer, not a reset."""

from __future__ import annotations

import subprocess

import pytest

from lib import over, site
from lib.servers import Hayate


@pytest.mark.parametrize("size", [3, 100_000])
def test_an_answer_that_needs_no_body_comes_whole(hayate_command, tmp_path, size: int) -> None:
    root = site.make(tmp_path)
    body = tmp_path / "body"
    body.write_bytes(b"a" * size)
    with Hayate(root, config="http2_prior_knowledge = true\n", workers=1) as hayate:
        for path, status in (("/missing.php", "404"), ("/plain.txt", "405"), ("/ok.php", "200")):
            done = subprocess.run(
                ["curl", "-s", over.curl_http2(), "-o", "/dev/null", "-w", "%{http_code} %{errormsg}",
                 "--data-binary", f"@{body}", hayate.url + path],
                capture_output=True, text=True, timeout=60,
            )  # fmt: skip
            assert done.stdout.strip() == status, (path, done.stdout)
