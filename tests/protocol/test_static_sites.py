"""Sites of static files (`php = "off"`): no PHP is started for them, and methods and missing files are answered as nginx answers them."""

from __future__ import annotations

import os
import pathlib
import subprocess
from collections.abc import Iterator

import pytest

from lib.client import Response, encode, exchange
from lib.process import descendants, running, wait_until
from lib.servers import Hayate, NginxFpm, hayate_binary

PHP_VERSION = os.environ.get("HAYATE_PHP", "8.2")


def write(root: pathlib.Path, files: dict[str, str]) -> pathlib.Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def ask(server, target: str, method: str = "GET", host: str = "a.test", body: bytes = b"") -> Response:
    fields = [("Host", host), ("Connection", "close")]
    if body:
        fields.append(("Content-Length", str(len(body))))
    answer = exchange(("127.0.0.1", server.port), encode(method, target, fields, body))
    assert answer is not None
    return answer


def php_processes(server: Hayate) -> list[str]:
    """The command lines of the server's PHP hosts, zygotes and workers."""
    lines = []
    for pid in descendants(server.pid):
        try:
            line = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if "hayate-php" in line:
            lines.append(line)
    return lines


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> pathlib.Path:
    base = tmp_path_factory.mktemp("static")
    base.chmod(0o755)
    files = {"a.txt": "a", "index.html": "<h1>front</h1>", "d/index.html": "d", "x.php": "<?php echo 'SECRET';", "e/a.txt": "e"}
    return write(base / "site", files)


@pytest.fixture(scope="module")
def beside(hayate_command, root) -> Iterator[tuple[NginxFpm, Hayate]]:
    with running(NginxFpm(root), Hayate(config=f'[[app]]\nroot = "{root}"\nphp = "off"\n')) as both:
        yield both


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize("target", ["/a.txt", "/", "/d/", "/d", "/nothing", "/nothing/x"])
def test_methods_and_missing_files_as_with_nginx(beside, target: str, method: str) -> None:
    nginx, hayate = (ask(server, target, method, body=b"x" if method in ("POST", "PUT", "PATCH") else b"") for server in beside)
    assert hayate.status == nginx.status
    if hayate.status == 405:
        assert hayate.header("allow") == "GET, HEAD"
    if method == "GET" and hayate.status == 200:
        assert hayate.body == nginx.body


def test_no_php_is_started(beside) -> None:
    _, hayate = beside
    assert php_processes(hayate) == []
    for target in ("/x.php", "/x.php/y", "/x.php?a"):
        answer = ask(hayate, target)
        assert answer.status == 404 and b"<?php" not in answer.body and b"SECRET" not in answer.body
    assert "static files, no PHP" in hayate.log()
    assert hayate.status()["static_sites"][0]["document_root"] == str(hayate.status()["static_sites"][0]["document_root"])
    assert hayate.status()["apps"] == []
    assert "static files, no PHP" in hayate.run("status").stdout


@pytest.mark.plain("it writes its configuration anew")
def test_a_site_changes_between_the_two_by_a_reload(hayate_command, root, tmp_path) -> None:
    tmp_path.chmod(0o755)
    config = tmp_path / "hayate.toml"
    one = f'[[app]]\nname = "{{}}"\nhosts = "{{}}.test"\nroot = "{root}"\nphp = "{{}}"\n'
    config.write_text(one.format("b", "b", PHP_VERSION) + one.format("a", "a", "off") + one.format("c", "c", PHP_VERSION))
    with Hayate(config=config, workers=1) as hayate:

        def ran(host: str) -> bool:
            return b"SECRET" in ask(hayate, "/x.php", host=f"{host}.test").body

        assert [ran(host) for host in "abc"] == [False, True, True]
        assert not any("--name a " in line for line in php_processes(hayate))
        config.write_text(one.format("b", "b", "off") + one.format("a", "a", PHP_VERSION) + one.format("c", "c", "off"))
        assert hayate.reload().returncode == 0
        assert [ran(host) for host in "abc"] == [True, False, False]
        assert wait_until(lambda: bool(php_processes(hayate)) and all("--name a " in line for line in php_processes(hayate)), 60)
        assert [ask(hayate, "/a.txt", host=f"{host}.test").body for host in "abc"] == [b"a"] * 3


def test_a_page_for_what_is_no_file(hayate_command, root) -> None:
    # What applications in the browser need, with nginx `try_files $uri $uri/ /index.html`.
    config = f'[[app]]\nroot = "{root}"\nphp = "off"\nfront_controller = "index.html"\n'
    with Hayate(config=config) as hayate:
        for target in ("/", "/orders/7", "/e/"):
            answer = ask(hayate, target)
            assert (answer.status, answer.body) == (200, b"<h1>front</h1>"), target
        assert ask(hayate, "/a.txt").body == b"a"
        assert ask(hayate, "/x.php").status == 404
        assert ask(hayate, "/orders/7", "POST").status == 405


@pytest.mark.parametrize("how", ["rule", "key"])
def test_what_closes_the_page_for_what_is_no_file_closes_it_for_all(hayate_command, root, how: str) -> None:
    config = f'[[app]]\nroot = "{root}"\nphp = "off"\nfront_controller = "d/index.html"\n'
    config += 'deny = ["/d"]\n' if how == "key" else '[[app.rule]]\npath = "/d"\ndeny = 404\n'
    with Hayate(config=config) as hayate:
        for target in ("/d/index.html", "/d/", "/nothing", "/nothing/at/all"):
            for method in ("GET", "HEAD"):
                assert ask(hayate, target, method).status == 404, target
        assert ask(hayate, "/a.txt").body == b"a"


def test_check_says_so_and_what_does_not_fit(hayate_command, root, tmp_path) -> None:
    config = tmp_path / "hayate.toml"

    def check(more: str) -> subprocess.CompletedProcess[str]:
        config.write_text(f'[[app]]\nroot = "{root}"\nphp = "off"\n{more}')
        return subprocess.run([hayate_binary(), "check", "--config", config], capture_output=True, text=True, check=False)

    done = check("")
    assert done.returncode == 0 and "static files: no PHP is started" in done.stdout and "workers" not in done.stdout
    done = check("worker = 'x.php'\n")
    assert done.returncode == 2 and 'hayate.toml:4: worker: with php = "off" no script runs' in done.stderr
    done = check("front_controller = 'x.php'\n")
    assert done.returncode == 2 and "front_controller: x.php does not run" in done.stderr
