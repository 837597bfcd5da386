"""An application's directory is its own to fill: with links to what only others may read, and with what is no file. Neither is to work
on anybody else: the front reads for all applications, and the configuration is read by root."""

from __future__ import annotations

import os
import pathlib
import pwd
import shutil
import subprocess
from collections.abc import Iterator

import pytest
import requests

from lib.process import temporary_directory
from lib.servers import Hayate, hayate_binary

SEND = "<?php header('X-Sendfile: ' . $_GET['to']);"


@pytest.fixture
def place() -> Iterator[pathlib.Path]:
    """A directory that every user may enter."""
    directory = temporary_directory("others")
    yield directory
    shutil.rmtree(directory)


def owned(path: pathlib.Path, user: str, mode: int, text: str | None = None) -> pathlib.Path:
    if text is None:
        path.mkdir()
    else:
        path.write_text(text)
    shutil.chown(path, user, pwd.getpwnam(user).pw_gid)
    path.chmod(mode)
    return path


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a server of several users")
def test_a_link_leads_to_no_file_that_its_application_may_not_read(hayate_command, place) -> None:
    a, b, logs = (owned(place / name, user, mode) for name, user, mode in
                  (("a", "www-data", 0o755), ("b", "backup", 0o750), ("logs", "nobody", 0o700)))  # fmt: skip
    root = owned(a / "public", "www-data", 0o755)
    files = owned(a / "files", "www-data", 0o755)
    owned(root / "index.php", "www-data", 0o644, "<?php echo 'a';")
    owned(root / "send.php", "www-data", 0o644, SEND)
    owned(files / "own.txt", "www-data", 0o600, "of a").chmod(0o640)
    owned(files / "f.bin", "www-data", 0o644, "plain")
    owned(place / "shared.txt", "root", 0o644, "of all")
    owned(b / "open.txt", "backup", 0o644, "secret of b")
    owned(b / "closed.txt", "backup", 0o640, "secret of b")
    owned(b / "index.html", "backup", 0o644, "secret of b")
    config = (
        f'front_user = "nobody"\naccess_log = "{logs}/access.log"\n'
        f'[[app]]\nname = "a"\nroot = "{a}"\ndocument_root = "public"\nuser = "www-data"\nworkers = 1\nsendfile_roots = ["{files}"]\n'
        f'[[app]]\nname = "b"\nroot = "{b}"\ndocument_root = "."\nuser = "backup"\nworkers = 1\npath = "/b"\n'
    )
    with Hayate(config=config, access_log=None) as server:

        def get(path: str, **headers: str) -> tuple[int, str]:
            answer = requests.get(server.url + path, timeout=60, headers=headers)
            return answer.status_code, answer.text

        assert get("/b/closed.txt") == (200, "secret of b"), "the front reads what b shares with its group"
        for name, to in {
            "open.txt": b / "open.txt",
            "closed.txt": b / "closed.txt",
            "tree": b,
            "log.txt": logs / "access.log",
            "own.txt": files / "own.txt",
            "shared.txt": place / "shared.txt",
            "beside.txt": "send.php",
        }.items():
            (root / name).symlink_to(to)
        for path in ("/open.txt", "/closed.txt", "/tree/open.txt", "/tree/", "/log.txt"):
            # Once more: what was found is remembered.
            for _ in range(3):
                status, text = get(path)
                assert status in (403, 404) and "secret" not in text and "GET" not in text, path
        assert get("/own.txt") == (200, "of a") and get("/shared.txt") == (200, "of all")
        # What is packed beside a file that may be sent.
        assert get(f"/send.php?to={files}/f.bin") == (200, "plain")
        for ending in (".gz", ".br", ".zst"):
            (files / f"f.bin{ending}").symlink_to(b / "open.txt")
        status, text = get(f"/send.php?to={files}/f.bin", **{"Accept-Encoding": "identity"})
        assert (status, text) == (200, "plain")
        raw = requests.get(
            f"{server.url}/send.php?to={files}/f.bin", headers={"Accept-Encoding": "gzip, br, zstd"}, stream=True, timeout=60
        ).raw.read(decode_content=False)
        assert b"secret" not in raw
        # The root itself becomes a link, which its owner may do where the directory above is its own.
        root.rename(a / "before")
        root.symlink_to(b)
        status, text = get("/open.txt")
        assert status in (403, 404) and "secret" not in text
        assert get("/b/open.txt") == (200, "secret of b")


@pytest.mark.parametrize(
    "name", ["composer.json", "composer.lock", "public/.htaccess", "public/key.pem", "public/dump.sql", ".env", "public/index.php"]
)
@pytest.mark.parametrize("what", ["pipe", "endless"])
def test_what_is_no_file_holds_up_nobody_who_reads_the_configuration(hayate_command, tmp_path, name, what) -> None:
    root = tmp_path / "site"
    (root / "public").mkdir(parents=True)
    (root / "public/index.php").write_text("<?php echo 1;")
    # As a project of Laravel has them, so that all of its files are looked at.
    (root / "composer.json").write_text('{"require": {"laravel/framework": "*"}}')
    for file in ("vendor/autoload.php", "bootstrap/app.php", "artisan"):
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text("<?php")
    (root / name).unlink(missing_ok=True)
    if what == "pipe":
        os.mkfifo(root / name)
    else:
        (root / name).symlink_to("/dev/zero")
    config = tmp_path / "hayate.toml"
    config.write_text(f'listen = "127.0.0.1:0"\n[[app]]\nroot = "{root}"\n')
    # Memory that a file without end would use up.
    command = ["/usr/bin/prlimit", f"--as={4 << 30}", hayate_binary(), "check", "--config", config]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert checked.returncode in (0, 1, 2), checked
    assert "application" in checked.stdout + checked.stderr
