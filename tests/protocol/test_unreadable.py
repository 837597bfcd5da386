"""Scripts and directories that the user of PHP may not read: what nginx and php-fpm answer, and a log that names the file and the user."""

from __future__ import annotations

import os
import pathlib
import pwd
from collections.abc import Iterator

import pytest
import requests

from lib.servers import Hayate, NginxFpm, Server

# Root reads everything.
USER = "www-data" if os.geteuid() == 0 else None

#: Path, status, and the body where it is PHP's.
ANSWERS = {
    "/ok.php": (200, "ok"),
    "/closed.php": (403, "Access denied.\n"),
    "/closed.php/info": (403, "Access denied.\n"),
    "/index/": (403, "Access denied.\n"),
    "/link.php": (403, "Access denied.\n"),
    "/closed.txt": (403, None),
    "/directory/": (403, None),
    "/directory/in.php": (404, None),
    "/directory/in.txt": (404, None),
    "/folder.php": (404, None),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    root = tmp_path_factory.mktemp("unreadable") / "site"
    for name in ("index", "directory", "folder.php"):
        (root / name).mkdir(parents=True)
    for name in ("closed.php", "index/index.php", "directory/index.php", "directory/in.php", "directory/in.txt", "closed.txt"):
        (root / name).write_text("never")
    (root / "ok.php").write_text("<?php echo 'ok';")
    (root / "requires.php").write_text("<?php echo 'before'; require __DIR__ . '/closed.php';")
    (root.parent / "prepended.php").write_text("<?php header('X-Prepended: yes');")
    (root.parent / "prepended.php").chmod(0o644)
    (root / "link.php").symlink_to("closed.php")
    for path in [root.parent, root, *root.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    for name in ("closed.php", "index/index.php", "closed.txt"):
        (root / name).chmod(0)
    (root / "directory").chmod(0o600)
    yield root
    (root / "directory").chmod(0o755)


def check(server: Server) -> None:
    for path, (status, body) in ANSWERS.items():
        answer = requests.get(server.url + path, verify=False, timeout=60)
        assert answer.status_code == status, path
        assert "never" not in answer.text
        assert body is None or answer.text == body, path


@pytest.mark.reference
def test_nginx_and_php_fpm(site: pathlib.Path) -> None:
    with NginxFpm(site) as server:
        check(server)


@pytest.mark.parametrize("ini", [{}, {"display_errors": "1", "html_errors": "1"}, {"opcache.enable": "0"}], ids=["default", "displayed", "no OPcache"])
def test_answers_as_php_fpm_and_the_log_names_file_and_user(site: pathlib.Path, ini: dict[str, str]) -> None:
    with Hayate(site, user=USER, ini=ini) as server:
        check(server)
        check(server)  # once more, by the same workers
        log = server.log()
    for file in ("closed.php", "index/index.php", "link.php"):
        lines = [line for line in log.splitlines() if f"Unable to open primary script: {site / file} (Permission denied)" in line]
        assert lines and "ERROR" in lines[0] and 'app="site"' in lines[0] and "request=" in lines[0], log
        user = pwd.getpwuid(os.geteuid()) if USER is None else pwd.getpwnam(USER)
        assert f"PHP runs as {user.pw_name} (uid {user.pw_uid})" in lines[0], lines
        assert "Failed opening required" not in lines[0]
    said = [line for line in log.splitlines() if "cannot be looked at" in line]
    assert len(said) == 1 and f'{site}/directory/' in said[0] and "search a directory" in said[0], log


PREPENDING = ["ini", "user.ini"]


def prepending(site: pathlib.Path, how: str) -> dict[str, str]:
    """A file that says so in a header and in the body, which begins the answer."""
    (site.parent / "prepended.php").write_text("<?php header('X-Prepended: yes'); echo 'prepended '; flush();")
    (site / ".user.ini").unlink(missing_ok=True)
    if how == "ini":
        return {"auto_prepend_file": str(site.parent / "prepended.php")}
    (site / ".user.ini").write_text(f"auto_prepend_file = {site.parent}/prepended.php\n")
    return {}


def check_prepending(server: Server) -> None:
    for _ in range(2):  # the second time by workers that have answered so
        for path in ("/closed.php", "/index/"):
            answer = requests.get(server.url + path, verify=False, timeout=60)
            assert (answer.status_code, answer.text) == (403, "Access denied.\n") and "X-Prepended" not in answer.headers
        answer = requests.get(server.url + "/ok.php", verify=False, timeout=60)
        assert (answer.status_code, answer.text, answer.headers["X-Prepended"]) == (200, "prepended ok", "yes")


@pytest.mark.reference
@pytest.mark.parametrize("how", PREPENDING)
def test_nginx_and_php_fpm_prepend_nothing_to_it(site: pathlib.Path, how: str) -> None:
    with NginxFpm(site, ini=prepending(site, how)) as server:
        check_prepending(server)


@pytest.mark.parametrize("opcache", ["1", "0"])
@pytest.mark.parametrize("how", PREPENDING)
def test_nothing_runs_before_a_script_that_cannot_be_opened(site: pathlib.Path, how: str, opcache: str) -> None:
    ini = {**prepending(site, how), "opcache.enable": opcache}
    with Hayate(site, user=USER, ini=ini, workers=1) as server:
        check_prepending(server)
        log = server.log()
    assert f"Unable to open primary script: {site}/closed.php (Permission denied)" in log and "/dev/null" not in log
    (site / ".user.ini").unlink(missing_ok=True)


def test_a_script_that_is_cached_does_not_run_without_what_is_prepended(site: pathlib.Path) -> None:
    ini = {**prepending(site, "ini"), "opcache.validate_timestamps": "0"}
    cached = site / "cached.php"
    cached.write_text("<?php echo 'cached';")
    cached.chmod(0o644)
    with Hayate(site, user=USER, ini=ini, workers=1) as server:
        ask = lambda: requests.get(server.url + "/cached.php", verify=False, timeout=60).text  # noqa: E731
        assert [ask(), ask()] == ["prepended cached"] * 2
        cached.chmod(0)
        assert ask() == "Access denied.\n"
        cached.chmod(0o644)
        assert ask() == "prepended cached"


def test_what_a_script_requires_is_its_own_affair(site: pathlib.Path) -> None:
    with Hayate(site, user=USER, ini={"display_errors": "0"}) as server:
        answer = requests.get(server.url + "/requires.php", verify=False, timeout=60)
        assert (answer.status_code, answer.text) == (500, "before")
        assert "Failed opening required" in server.log()
