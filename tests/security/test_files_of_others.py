"""An application's directory is its own to fill: with links to what only others may read, and with what is no file. Neither is to work
on anybody else: the front reads for all applications, and the configuration is read by root."""

from __future__ import annotations

import os
import pathlib
import pwd
import shutil
import subprocess
import time
from collections.abc import Iterator

import pytest
import requests

from lib.process import temporary_directory
from lib.servers import Hayate, free_port, hayate_binary

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


def setfacl(*arguments: object) -> None:
    """Sets an access control list, or skips the test where there are none."""
    if shutil.which("setfacl") is None:
        pytest.skip("no setfacl here (Debian's package acl)")
    done = subprocess.run(["setfacl", *map(str, arguments)], capture_output=True, text=True, check=False)
    if "not supported" in done.stderr:
        pytest.skip("the file system knows no access control lists")
    assert done.returncode == 0, done.stderr


@pytest.fixture
def linked(hayate_command, place) -> Iterator[Hayate]:
    """An application of www-data behind a front of nobody; its `link` leads to a directory `shared` outside of its root."""
    root = owned(place / "public", "www-data", 0o755)
    owned(root / "send.php", "www-data", 0o644, SEND)
    owned(root / "closed.txt", "nobody", 0o600, "of the front's user")
    owned(place / "shared", "root", 0o755)
    (root / "link").symlink_to(place / "shared")
    config = (
        f'front_user = "nobody"\nuser = "www-data"\n[[app]]\nname = "a"\nroot = "{root}"\ndocument_root = "."\nworkers = 1\n'
        f'sendfile_roots = ["{place}/shared"]\n'
    )
    with Hayate(config=config) as server:
        yield server


def status_of(server: Hayate, path: str) -> int:
    return requests.get(server.url + path, timeout=60).status_code


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a server of several users")
def test_an_access_control_list_says_what_an_application_may_read(linked, place) -> None:
    shared = place / "shared"

    def file(name: str, mode: int, directory: str = "") -> pathlib.Path:
        return owned(shared / directory / name, "root", mode, "of all")

    # `others` is what the front goes by; what the application's user may do decides.
    takes, gives = file("takes", 0o644), file("gives", 0o600)
    setfacl("-m", "u:www-data:-", takes)
    setfacl("-m", "u:www-data:r,u:nobody:r", gives)
    of_a_group, other, _ = file("of-a-group", 0o600), file("other", 0o644), file("plain", 0o644)
    setfacl("-m", "g:www-data:r,u:nobody:r", of_a_group)
    setfacl("-m", "u:backup:rw", other)
    for name, directory_list in (("closed", "u:www-data:-"), ("open", "u:www-data:x,u:nobody:x")):
        owned(shared / name, "root", 0o755 if name == "closed" else 0o700)
        file("a", 0o644, name)
        setfacl("-m", directory_list, shared / name)
    # As Symfony's documentation sets up var/: what anybody makes there, both may write.
    owned(shared / "var", "root", 0o755)
    for option in ("-dR", "-R"):
        setfacl(option, "-m", "u:www-data:rwX", "-m", "u:root:rwX", shared / "var")
    made = shared / "var/made.css"
    subprocess.run(["sh", "-c", f"umask 022 && echo made > {made}"], check=True)
    answers = {
        name: status_of(linked, f"/link/{name}")
        for name in ("plain", "takes", "gives", "of-a-group", "other", "closed/a", "open/a", "var/made.css")
    }
    expected = dict.fromkeys(answers, 200) | {"takes": 403, "closed/a": 403}
    assert answers == expected
    assert linked.logged("the application's user (uid 33) may not read it") and linked.log().count("may not read it") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a server of several users")
def test_a_script_has_nothing_sent_from_elsewhere_that_its_user_may_not_read(linked, place) -> None:
    """Nor does a link to what it tried to send pass, as something that was looked at a moment ago."""
    shared = place / "shared"
    # To nobody but the front, by its own group.
    closed = owned(shared / "closed.txt", "nobody", 0o600, "secret")
    owned(shared / "open.txt", "root", 0o644, "of all")
    os.utime(closed, (1_000_000_000, 1_000_000_000))
    # What changed within the last tick of the clock is not remembered.
    time.sleep(2.5)
    for _ in range(20):
        assert status_of(linked, f"/send.php?to={shared}/open.txt") == 200
        assert status_of(linked, f"/send.php?to={shared}/closed.txt") == 403
        assert status_of(linked, "/link/closed.txt") == 403
        assert status_of(linked, "/link/open.txt") == 200
    # Below the document root it is as with any other file of it.
    assert status_of(linked, f"/send.php?to={place}/public/closed.txt") == 200


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


@pytest.mark.parametrize("key", ["access_log", "pid_file"])
def test_a_pipe_that_nobody_reads_holds_up_no_start(hayate_command, tmp_path, key) -> None:
    (tmp_path / "site").mkdir()
    os.mkfifo(tmp_path / "pipe")
    config = tmp_path / "hayate.toml"
    config.write_text(
        f'listen = "127.0.0.1:{free_port()}"\ncontrol = "{tmp_path}/control"\n{key} = "{tmp_path}/pipe"\n[[app]]\nroot = "{tmp_path}/site"\nphp = "off"\n'
    )
    started = subprocess.run([hayate_binary(), "serve", "--config", config], capture_output=True, text=True, timeout=20, check=False)
    assert started.returncode != 0 and f"{tmp_path}/pipe" in started.stderr and "name" in started.stderr, started
    checked = subprocess.run([hayate_binary(), "check", "--config", config], capture_output=True, text=True, timeout=60, check=False)
    said = checked.stdout + checked.stderr
    assert f"{key}: " in said and "pipe" in said, said
    assert checked.returncode == (0 if key == "access_log" else 2), "a log may have its reader by then"


def test_a_log_that_cannot_be_opened_is_a_reload_that_fails(hayate_command, tmp_path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/a.txt").write_text("a")
    os.mkfifo(tmp_path / "pipe")
    app = f'[[app]]\nroot = "{tmp_path}/site"\nphp = "off"\n'
    config = tmp_path / "hayate.toml"
    config.write_text(app)
    with Hayate(config=config, access_log=None) as server:
        config.write_text(f'access_log = "{tmp_path}/pipe"\n{app}')
        began = time.monotonic()
        reloaded = server.reload()
        assert reloaded.returncode != 0 and "a pipe that nobody reads" in reloaded.stderr + reloaded.stdout, reloaded
        assert time.monotonic() - began < 10
        assert requests.get(server.url + "/a.txt", timeout=10).text == "a"
        # Somebody reads it: then it is a log as any other.
        reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
        assert server.reload().returncode == 0
        assert requests.get(server.url + "/a.txt", timeout=10).text == "a"
        os.set_blocking(reader, True)
        assert b"GET /a.txt" in os.read(reader, 4096)
        os.close(reader)
        assert requests.get(server.url + "/a.txt", timeout=10).text == "a"
        # The same log as before, and it could not be opened any more.
        reloaded = server.reload()
        assert reloaded.returncode != 0 and "a pipe that nobody reads" in reloaded.stderr + reloaded.stdout, reloaded
        assert requests.get(server.url + "/a.txt", timeout=10).text == "a"


@pytest.mark.parametrize("command", ["status", "reload", "check", "version"])
def test_a_full_disk_below_standard_output_is_an_error_and_no_panic(hayate_command, tmp_path, command) -> None:
    (tmp_path / "site").mkdir()
    config = tmp_path / "hayate.toml"
    config.write_text(f'[[app]]\nroot = "{tmp_path}/site"\nphp = "off"\n')
    with Hayate(config=config, access_log=None) as server, open("/dev/full", "w") as full:
        arguments = {"check": ["--config", config], "version": []}.get(command, ["--control", server.control])
        done = subprocess.run([hayate_binary(), command, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "No space left" in done.stderr and "panicked" not in done.stderr, done
