"""`include`: applications in files of their own, as sites-enabled of nginx and pool.d of php-fpm have them."""

from __future__ import annotations

import os
import pathlib
import subprocess

import pytest
import requests

from lib.servers import Hayate, hayate_binary

SITE = """
[[app]]
root = "{name}"
hosts = "{name}.test"
workers = 1
"""


def site(directory: pathlib.Path, name: str, more: str = "") -> pathlib.Path:
    """Below `directory/sites`, with its files beside it."""
    root = directory / "sites" / name
    root.mkdir(parents=True)
    (root / "index.php").write_text(f"<?php echo '{name}';")
    file = directory / "sites" / f"{name}.toml"
    file.write_text(SITE.format(name=name) + more)
    return file


def check(config: pathlib.Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([hayate_binary(), "check", "--config", config], capture_output=True, text=True, timeout=60)


@pytest.fixture
def configuration(tmp_path) -> pathlib.Path:
    tmp_path.chmod(0o755)
    (tmp_path / "sites").mkdir()
    config = tmp_path / "hayate.toml"
    config.write_text('include = "sites/*.toml"\n[limits]\nbody_size = "1M"\n')
    return config


def ask(server, host: str) -> str:
    answer = requests.get(server.url, headers={"Host": host}, timeout=60)
    return answer.text if answer.status_code == 200 else str(answer.status_code)


def test_each_file_is_a_site_of_its_own_and_a_reload_brings_further_ones(hayate_command, configuration) -> None:
    (configuration.parent / "main").mkdir()
    (configuration.parent / "main" / "index.php").write_text("<?php echo 'main';")
    for name in ("two", "one"):
        site(configuration.parent, name)
    configuration.write_text(configuration.read_text() + SITE.format(name="main"))
    # What an editor leaves beside it, and what is no configuration.
    (configuration.parent / "sites" / ".#one.toml").write_text("nonsense")
    (configuration.parent / "sites" / "one.toml~").write_text("nonsense")
    with Hayate(config=configuration, user="www-data") as server:
        assert [app["name"] for app in server.status()["apps"]] == ["main", "one", "two"]
        assert [ask(server, f"{name}.test") for name in ("main", "one", "two", "three")] == ["main", "one", "two", "404"]
        # Nor does a link lead to what another site has written down.
        (configuration.parent / "sites" / "one" / "link.txt").symlink_to(configuration.parent / "sites" / "two.toml")
        os.link(configuration.parent / "sites" / "two.toml", configuration.parent / "sites" / "one" / "hard.txt")
        for name in ("link", "hard"):
            assert requests.get(f"{server.url}/{name}.txt", headers={"Host": "one.test"}, timeout=60).status_code == 404
        file = site(configuration.parent, "three", "[app.env]\nA = 1\n[[app.rule]]\npath = '/x'\nalias = 'files'\n")
        refused = server.run("reload")
        assert refused.returncode != 0 and "sites/three.toml:10: rule 1: alias: " in refused.stderr, refused.stderr
        assert "sites/files" in refused.stderr and ask(server, "three.test") == "404"
        (file.parent / "files").mkdir()
        file.write_text(file.read_text().replace("A = 1", 'A = "b"'))
        (file.parent / "two.toml").unlink()
        assert server.run("reload").returncode == 0
        assert [ask(server, f"{name}.test") for name in ("main", "one", "two", "three")] == ["main", "one", "404", "three"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[limits]\nbody_size = "2M"\n', "sites/a.toml:1: 'limits' stands in the file that includes this one; [[app]] alone stands here"),
        ('include = "b.toml"\n', "sites/a.toml:1: 'include' stands in the file that includes this one"),
        ('listen = ":80"\n[[app]]\nroot = "one"\nworkerz = 1\n', "sites/a.toml:1: 'listen' stands in the file that includes this one"),
        ('[[app]]\nroot = "one"\nname = "x"\nhosts = "one.test"\n', "sites/one.toml:4: application 'one' answers to one.test and path / like application 'x'"),
        ('[[app]]\nroot = "nowhere"\n', "sites/a.toml:2: root: cannot use the directory "),
        ('[[app]]\nroot = "one"\n[[app]]\nroot = "one"\nhosts = "b.test"\nindex = "a/b"\n', "sites/a.toml:6: index: 'a/b'"),
        ('[[app]]\nroot = "."\n', "sites holds "),
        ("[[app]\n", "sites/a.toml:1: "),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_file_and_line(hayate_command, configuration, text, said) -> None:
    site(configuration.parent, "one")
    (configuration.parent / "sites" / "a.toml").write_text(text)
    done = check(configuration)
    assert done.returncode != 0 and said in done.stderr, (said, done.stderr)


@pytest.mark.parametrize(
    ("include", "said"),
    [
        ('"nowhere.toml"', "nowhere.toml: cannot read the configuration: No such file or directory"),
        ('"sites/fifo"', "sites/fifo: cannot read the configuration: it is no file"),
        ('"sites"', "sites: cannot read the configuration: Is a directory"),
        ('"sites/***.toml"', "hayate.toml:1: include: 'sites/***.toml' is no pattern"),
        ("3", "hayate.toml:1: include: "),
    ],
)
def test_what_cannot_be_included(hayate_command, configuration, include, said) -> None:
    os.mkfifo(configuration.parent / "sites" / "fifo")
    configuration.write_text(f"include = {include}\n" + SITE.format(name="sites"))
    done = check(configuration)
    assert done.returncode != 0 and said in done.stderr, (said, done.stderr)


def test_a_file_counts_once_and_no_pattern_has_to_fit(hayate_command, configuration) -> None:
    site(configuration.parent, "one")
    configuration.write_text('include = ["none/*.toml", "sites/one.toml", "sites/*.toml", "*.toml"]\n')
    done = check(configuration)
    assert done.returncode == 0, done.stderr
    assert 'include: no file fits "none/*.toml"' in done.stdout, done.stdout
    (configuration.parent / "sites" / "one.toml").unlink()
    configuration.write_text('include = "sites/*.toml"\n')
    done = check(configuration)
    assert done.returncode != 0 and 'it names no application, and no file fits include = "sites/*.toml"' in done.stderr, done.stderr
