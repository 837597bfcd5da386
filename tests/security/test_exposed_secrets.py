"""Secrets of the configuration that users of applications may read: `hayate check` and the log say so, and hold their peace where there is nothing to do."""

from __future__ import annotations

import os
import pathlib
import pwd
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from lib.process import temporary_directory
from lib.servers import Hayate, free_port, hayate_binary
from lib.tls import self_signed

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a server of several users")

#: A bcrypt hash of cost 4.
USERS = "anna:$2y$04$zKvuQyLoJkufXBLEEw2tHuDAXemS4DBB5AHAQ5D33cEVu/WXXZqvy\n"


@pytest.fixture
def directory() -> Iterator[pathlib.Path]:
    """With an application, a key, a file of users and a configuration, which are root's alone."""
    directory = temporary_directory("exposed")
    (directory / "site").mkdir(mode=0o755)
    (directory / "site" / "index.php").write_text("<?php echo 'served';")
    self_signed(directory, "a", ["a.test"])
    (directory / "staff").write_text(USERS)
    for name in ("a.key", "staff", "hayate.toml"):
        (directory / name).touch()
        (directory / name).chmod(0o600)
    yield directory
    shutil.rmtree(directory)


def write(directory: pathlib.Path, top: str = 'user = "www-data"', env: str = "DB_PASSWORD", more: str = "") -> pathlib.Path:
    config = directory / "hayate.toml"
    config.write_text(
        f'''{top}
listen = ["127.0.0.1:{free_port()}", {{ address = "127.0.0.1:{free_port()}", tls = true }}]
[tls]
certificates = [{{ certificate = "a.pem", key = "a.key" }}]
[[app]]
name = "shop"
root = "site"
hosts = ["a.test"]
workers = 1
[app.env]
{env} = "x"
[[app.rule]]
path = "/staff"
basic_auth = {{ users = "staff" }}
{more}'''
    )
    return config


def warnings(config: pathlib.Path, *flags: str, user: str | None = None) -> list[str]:
    """What `hayate check` says of secrets, without the file's directory."""
    command = [hayate_binary(), "check", "--config", config, *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, user=user)
    assert done.returncode == 0, done.stderr
    lines = [line.removeprefix("warning").strip() for line in done.stdout.splitlines() if line.startswith("warning")]
    return [line.replace(f"{config.parent}/", "") for line in lines if "may read it" in line or "acme_storage" in line]


def remedy(name: str) -> str:
    return f"the server reads it as root, so take it from all others: chown root: {name}; chmod 600 {name}"


def test_what_is_roots_alone_is_no_fault(directory) -> None:
    assert warnings(write(directory)) == []


def test_files_that_everybody_may_read_are_named_with_a_remedy(directory) -> None:
    config = write(directory)
    for name in ("a.key", "staff", "hayate.toml"):
        (directory / name).chmod(0o644)
    who = "and everybody on this machine may read it"
    assert warnings(config) == [
        f"hayate.toml:11: env: DB_PASSWORD looks like a secret in hayate.toml, {who}: {remedy('hayate.toml')}",
        f"hayate.toml:14: basic_auth: staff holds hashes of passwords, {who}: {remedy('staff')}",
        f"hayate.toml:4: certificates: a.key holds a key, {who}: {remedy('a.key')}",
    ]
    for name in ("a.key", "staff"):
        (directory / name).chmod(0o600)
    assert warnings(write(directory, env="APP_ENV")) == [], "there is nothing in it"


def test_the_log_says_the_same_at_the_start_and_with_each_reload(directory) -> None:
    config = directory / "hayate.toml"
    config.write_text(f'user = "www-data"\n[[app]]\nroot = "{directory}/site"\nworkers = 1\n[[app.rule]]\npath = "/staff"\nbasic_auth = {{ users = "staff" }}\n')
    (directory / "staff").chmod(0o644)
    with Hayate(config=config) as server:
        assert server.log().count("holds hashes of passwords, and everybody on this machine may read it") == 1, server.log()
        assert server.reload().returncode == 0
        assert server.log().count("holds hashes of passwords") == 2
        (directory / "staff").chmod(0o600)
        assert server.reload().returncode == 0
        assert server.log().count("holds hashes of passwords") == 2


def test_the_rights_of_groups_and_of_lists_count(directory) -> None:
    config = write(directory)
    number = pwd.getpwnam("www-data").pw_uid
    who = f"and PHP of 'shop', which runs as www-data (uid {number}), may read it"
    shutil.chown(directory / "a.key", group="www-data")
    (directory / "a.key").chmod(0o640)
    want = [f"hayate.toml:4: certificates: a.key holds a key, {who}: {remedy('a.key')}"]
    assert warnings(config) == want
    shutil.chown(directory / "a.key", group="root")
    assert warnings(config) == []
    given = subprocess.run(["setfacl", "-m", "u:www-data:r", directory / "a.key"], capture_output=True, text=True, check=False)
    if given.returncode == 0:
        assert warnings(config) == want
        (directory / "a.key").chmod(0o600)
        assert warnings(config) == [], "the remedy takes the list's rights as well"
    # Nobody gets past a directory that is closed.
    (directory / "a.key").chmod(0o644)
    (directory / "keys").mkdir(mode=0o700)
    (directory / "a.key").rename(directory / "keys" / "a.key")
    config.write_text(config.read_text().replace('"a.key"', '"keys/a.key"'))
    assert warnings(config) == []
    (directory / "keys").chmod(0o711)
    assert len(warnings(config)) == 1


def test_an_applications_own_secrets_are_its_own(directory) -> None:
    """It has them in its environment: only another one's user, or everybody, must not read them."""
    config = write(directory)
    shutil.chown(config, group="www-data")
    config.chmod(0o640)
    assert warnings(config) == []
    other = '[[app]]\nname = "blog"\nroot = "site"\nhosts = ["b.test"]\nuser = "nobody"\n[app.env]\nAPI_KEY = "x"\n'
    number = pwd.getpwnam("www-data").pw_uid
    (said,) = warnings(write(directory, more=other))
    assert said.startswith(f"hayate.toml:21: env: API_KEY looks like a secret in hayate.toml, and PHP of 'shop', which runs as www-data (uid {number}), may read it")


def test_nothing_is_said_where_nothing_can_be_done(directory) -> None:
    for name in ("a.key", "staff", "hayate.toml"):
        (directory / name).chmod(0o644)
    assert warnings(write(directory), "--dev") == []
    # PHP that runs as root reads what the server reads; of that there is another warning.
    assert warnings(write(directory, top="")) == []
    # One user for all that is not root.
    number = pwd.getpwnam("www-data").pw_uid
    for name in ("a.key", "a.pem", "staff", "hayate.toml"):
        os.chown(directory / name, number, number)
    assert warnings(write(directory, top=""), user="www-data") == []
    assert warnings(write(directory), user="www-data") == []


def test_keys_by_acme_that_php_may_read_are_named(directory) -> None:
    """With one user for front and PHP."""
    storage = directory / "acme"
    (storage / "ca").mkdir(parents=True)
    (storage / "ca" / "a.test.pem").write_text("")
    (storage / "ca" / "a.test.pem").chmod(0o600)
    for place in (storage, storage / "ca", storage / "ca" / "a.test.pem"):
        shutil.chown(place, "www-data")
    config = write(directory, top='user = "www-data"\nfront_user = "www-data"')
    config.write_text(config.read_text().replace("[tls]", '[tls]\nacme = "on"\nacme_hosts = ["c.test"]\nacme_storage = "acme"'))
    (said,) = warnings(config)
    assert said.startswith("acme_storage: acme holds keys of certificates, and PHP of 'shop', which runs as www-data")
    assert "may read them: give the front a user of its own (front_user)" in said


def test_who_may_not_read_the_configuration_is_told_what_to_do(directory) -> None:
    config = write(directory)
    done = subprocess.run([hayate_binary(), "check", "--config", config], capture_output=True, text=True, timeout=60, check=False, user="nobody")
    assert done.returncode == 2
    assert done.stderr == (
        f"hayate: {config}: cannot read the configuration: Permission denied (os error 13); it may hold passwords, and who may read it is "
        "for its owner to say: run this as root (sudo)\n"
    )
