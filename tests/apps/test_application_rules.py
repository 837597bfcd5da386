"""The ready-made rules of docs/rules.md: all are well-formed, and WordPress' do on Debian's package what the page says."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess

import pytest

from lib.client import Response, encode, exchange
from lib.servers import PHP_VERSION, REPOSITORY, Hayate, hayate_binary

PAGE = (REPOSITORY / "docs/rules.md").read_text()
BLOCKS = dict(re.findall(r"^## (\w+)\n\n```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))


def test_there_are_rules_for_those_that_need_them() -> None:
    assert set(BLOCKS) == {"WordPress", "MediaWiki", "DokuWiki", "phpMyAdmin", "Drupal", "Nextcloud"}


@pytest.mark.parametrize("name", BLOCKS)
def test_ready_made_rules_are_well_formed(hayate_command, tmp_path: pathlib.Path, name: str) -> None:
    (tmp_path / "site").mkdir()
    config = tmp_path / "hayate.toml"
    config.write_text(f'[[app]]\nroot = "site"\nphp = "{PHP_VERSION}"\n{BLOCKS[name]}')
    done = subprocess.run([hayate_binary(), "check", "--config", config], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


WORDPRESS = pathlib.Path("/usr/share/wordpress")


@pytest.mark.skipif(not WORDPRESS.exists(), reason="the package wordpress is not installed")
def test_rules_of_wordpress(hayate_command, tmp_path: pathlib.Path) -> None:
    tmp_path.chmod(0o755)
    # The package's links into /etc and to libraries of others are not needed for this.
    root = tmp_path / "site"
    shutil.copytree(WORDPRESS, root, ignore_dangling_symlinks=True)
    uploads = root / "wp-content/uploads/2026"
    uploads.mkdir(parents=True, exist_ok=True)
    for name in ("evil.php", "index.php", "evil.phtml", "evil.PHP"):
        (uploads / name).write_text("<?php echo 'RAN';")
    (uploads / "a.png").write_text("a picture")
    # An hour in place of a minute, so that the count does not depend on how busy the machine is.
    rules = BLOCKS["WordPress"].replace('per = "1m"', 'per = "1h"')
    assert rules != BLOCKS["WordPress"]
    config = f'[[app]]\nroot = "{root}"\nfront_controller = "index.php"\n{rules}'
    with Hayate(config=config, workers=2) as hayate:

        def ask(target: str, method: str = "GET") -> Response:
            request = encode(method, target, [("Host", "a.test"), ("Connection", "close"), ("Content-Length", "0")])
            answer = exchange(("127.0.0.1", hayate.port), request, timeout=60)
            assert answer is not None and b"RAN" not in answer.body, target
            return answer

        def status(target: str, method: str = "GET") -> int:
            return ask(target, method).status

        def said(target: str) -> str:
            return ask(target).body.decode()

        below = "/wp-content/uploads/2026"
        for closed in ("/evil.php", "/evil.php/x.png", "/", "/index.php", "/evil.phtml", "/evil.PHP", "//evil%2ephp"):
            assert status(below + closed) == 403, closed
        for closed in ("/wp-config.php", "/wp-includes/version.php", "/wp-includes/blocks/archives.php", "/xmlrpc.php", "/wp-admin/includes/file.php"):
            assert status(closed) == 403, closed
        assert status("/readme.html") == 404
        assert status(below + "/a.png") == 200
        assert status("/wp-includes/css/buttons.css") == 200
        # Not installed, it says that it lacks its configuration: but it is WordPress that says so.
        assert "/etc/wordpress" in said("/wp-login.php")
        tries = [status("/wp-login.php", "POST") for _ in range(14)]
        assert tries.count(429) == 3 and tries[-1] == 429, tries
