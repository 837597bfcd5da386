"""What an application does to its own files keeps neither the server from starting nor its neighbours from being served."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

import pytest
import requests

from lib import site
from lib.process import PATIENCE
from lib.servers import GENERIC_WORKER, Hayate, hayate_binary


USER = "anna:$2y$04$zKvuQyLoJkufXBLEEw2tHuDAXemS4DBB5AHAQ5D33cEVu/WXXZqvy\n"


def fifo(path: pathlib.Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def endless(path: pathlib.Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("how", [fifo, endless])
@pytest.mark.parametrize("name", ["composer.json", "composer.lock", ".env", ".htaccess", "key.pem", "sub/.htaccess"])
def test_what_is_no_file_is_not_waited_for(hayate_command, tmp_path, name, how) -> None:
    root = site.make(tmp_path)
    (root / "sub").mkdir(exist_ok=True)
    if name in ("composer.lock", ".env"):
        # Only a project that is recognised so far is looked at further.
        for file in ["bin/console", "public/index.php", "src/Kernel.php", "vendor/autoload.php", "vendor/autoload_runtime.php"]:
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            (root / file).write_text("<?php\nrequire_once dirname(__DIR__).'/vendor/autoload_runtime.php';\nreturn function (array $context) {};\n")
        (root / "composer.json").write_text('{"require": {"symfony/framework-bundle": "*"}}')
    how(root / name)
    command = [str(hayate_binary()), "check", str(root)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20 * PATIENCE, check=False)
    assert done.returncode == 0 and "This can be served." in done.stdout, done.stderr


def gone(app: pathlib.Path) -> None:
    (app / "public").rename(app / "gone")


def repair_gone(app: pathlib.Path) -> None:
    (app / "gone").rename(app / "public")


def published(app: pathlib.Path) -> None:
    gone(app)
    (app / "public").symlink_to("/etc")


def repair_published(app: pathlib.Path) -> None:
    (app / "public").unlink()
    repair_gone(app)


def users(app: pathlib.Path) -> None:
    fifo(app / "users")


def repair_users(app: pathlib.Path) -> None:
    (app / "users").unlink()
    (app / "users").write_text(USER)


def script(app: pathlib.Path) -> None:
    (app / "worker.php").unlink()


def repair_script(app: pathlib.Path) -> None:
    shutil.copy(GENERIC_WORKER, app / "worker.php")


def boot(app: pathlib.Path) -> None:
    (app / "worker.php").write_text("<?php throw new Exception('no boot today');")


@pytest.mark.parametrize(
    ("harm", "repair", "says"),
    [
        (gone, repair_gone, "cannot use the directory"),
        (published, repair_published, "/etc is a directory of the system"),
        (users, repair_users, "it is no regular file"),
        (script, repair_script, "cannot use the file"),
        (boot, repair_script, "no boot today"),
    ],
)
def test_an_application_that_cannot_be_started_does_not_keep_others_down(hayate_command, tmp_path, harm, repair, says) -> None:
    app, other = tmp_path / "app", site.make(tmp_path / "other")
    site.make(app).rename(app / "public")
    repair_script(app)
    (app / "users").write_text(USER)
    config = f"""
[[app]]
name = "harmed"
hosts = ["harmed.test"]
root = "{app}"
document_root = "public"
worker = "worker.php"
warmup = []
workers = 1
rule = [{{ path = "/private", basic_auth = {{ users = "{app}/users" }} }}]
[[app]]
name = "other"
root = "{other}"
workers = 1
"""
    harm(app)

    def harmed(path: str) -> int:
        return requests.get(server.url + path, headers={"host": "harmed.test"}, timeout=60).status_code

    with Hayate(config=config) as server:
        assert requests.get(server.url + "/ok.php?x", timeout=60).text == "ok x"
        assert harmed("/ok.php") == 503
        assert says in server.log()
        assert says in server.run("status").stdout
        assert server.reload().returncode != 0
        assert requests.get(server.url + "/ok.php?x", timeout=60).text == "ok x"
        if harm is not boot:
            assert [harmed(path) for path in ("/", "/style.css", "//", "/private/x")] == [503] * 4
            checked = subprocess.run(
                [str(hayate_binary()), "check", "--config", str(server._config)], capture_output=True, text=True, timeout=60, check=False
            )
            assert checked.returncode == 2 and says in checked.stderr
        repair(app)
        assert server.reload().returncode == 0, server.log_tail()
        assert harmed("/ok.php") == 200
        assert not server.status().get("failed")
