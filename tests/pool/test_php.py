"""Which PHP an application gets: its version, its ini files, what `hayate check` says of them."""

from __future__ import annotations

import json
import os
import pathlib
import pwd
import re
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest
import requests
from lib.process import temporary_directory, wait_until
from lib.servers import PHP_VERSION, ROOT, Hayate, NginxFpm, hayate_binary

#: Settings that the directories and files below give, and what scripts see of the variables that name those.
PAGE = """<?php
$names = ['user_agent', 'default_charset', 'auto_prepend_file', 'error_prepend_string'];
echo json_encode([array_combine($names, array_map('ini_get', $names)),
    array_map('getenv', ['PHP_INI_SCAN_DIR', 'PHPRC']), array_map('basename', array_filter([php_ini_loaded_file()])),
    extension_loaded('ctype')]);
"""


@pytest.fixture
def site() -> Iterator[pathlib.Path]:
    directory = temporary_directory("php")
    (directory / "public").mkdir()
    (directory / "public/index.php").write_text(PAGE)
    for place, setting in (("one", "user_agent=one"), ("two", "user_agent=two\nerror_prepend_string=two")):
        (directory / place).mkdir()
        (directory / place / "a.ini").write_text(setting)
    (directory / "rc").mkdir()
    (directory / "rc/php.ini").write_text("auto_prepend_file=\nerror_prepend_string=rc\nuser_agent=rc")
    yield directory


def seen(server: Hayate | NginxFpm) -> list:
    return json.loads(requests.get(server.url + "/index.php", timeout=60).text)


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"PHP_INI_SCAN_DIR": "{site}/one"},
        {"PHP_INI_SCAN_DIR": ":{site}/one:{site}/two"},
        {"PHP_INI_SCAN_DIR": "{site}/two:{site}/one", "PHPRC": "{site}/rc"},
        {"PHP_INI_SCAN_DIR": "", "PHPRC": "{site}/rc/php.ini"},
        {"PHPRC": "{site}/nowhere"},
    ],
)
def test_the_environment_chooses_ini_files_as_for_php_fpm(
    site: pathlib.Path, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {name: value.format(site=site) for name, value in variables.items()}
    for name in ("PHP_INI_SCAN_DIR", "PHPRC"):
        monkeypatch.delenv(name, raising=False)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        with NginxFpm(site / "public") as reference:
            expected = seen(reference)
    with Hayate(site / "public", env=environment) as server:
        assert seen(server) == expected


def test_a_relative_directory_is_seen_from_where_the_server_was_started(
    site: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(site)
    with Hayate(site / "public", env={"PHP_INI_SCAN_DIR": "one"}) as server:
        assert seen(server)[0]["user_agent"] == "one"


def test_each_application_has_its_own_directories(site: pathlib.Path) -> None:
    config = f"""
        [[app]]
        root = "{site}/public"
        path = "/one"
        php_ini_scan_dir = "{site}/one"
        [[app]]
        root = "{site}/public"
        path = "/both"
        php_ini_scan_dir = ["", "{site}/one", "{site}/two"]
        [[app]]
        root = "{site}/public"
        path = "/own"
        php_ini_scan_dir = "{site}/one"
        env = {{ PHP_INI_SCAN_DIR = "{site}/two" }}
        [[app]]
        root = "{site}/public"
        path = "/distribution"
        php_ini_scan_dir = ""
        [[app]]
        root = "{site}/public"
        path = "/none"
        php_ini_scan_dir = []
    """
    with Hayate(config=config, env={"PHP_INI_SCAN_DIR": "/nowhere"}) as server:
        pages = {path: json.loads(requests.get(f"{server.url}/{path}/index.php", timeout=60).text)
                 for path in ("one", "both", "own", "distribution", "none")}
    assert pages["one"][0]["user_agent"] == "one" and pages["one"][0]["error_prepend_string"] in ("", None)
    assert pages["both"][0]["user_agent"] == "two" and pages["both"][0]["error_prepend_string"] == "two"
    # What it sets for itself is its own: scripts see it, and PHP has always gone by it.
    assert pages["own"][0]["user_agent"] == "two" and pages["own"][1][0] == f"{site}/two"
    assert pages["one"][1] == [False, False]
    assert pages["distribution"][0]["user_agent"] == pages["none"][0]["user_agent"] == ""
    # Debian's extensions are loaded by files of its directory, and without one there are those within PHP.
    assert pages["distribution"][3] and not pages["none"][3]


def test_variables_that_are_inherited_choose_no_ini_files(site: pathlib.Path) -> None:
    """And HOME and USER are the user's, as under php-fpm with clear_env = no, unless they are named."""
    (site / "public/home.php").write_text("<?php echo json_encode(array_map('getenv', ['HOME', 'USER', 'OTHER', 'PHPRC']));")
    config = "".join(
        f"""
        [[app]]
        root = "{site}/public"
        path = "/{path}"
        inherit_env = {inherited}
        php_ini_scan_dir = {directories}
        """
        for path, inherited, directories in (("own", '"*"', f'"{site}/one"'), ("distribution", '"*"', '""'), ("named", '["HOME"]', "[]"))
    )
    env = {"PHP_INI_SCAN_DIR": "two", "PHPRC": "rc", "HOME": "/elsewhere", "USER": "somebody", "OTHER": "x"}
    user = pwd.getpwuid(os.geteuid())
    with Hayate(config=config, env=env) as server:
        def seen_by(path: str) -> tuple[list, list]:
            return tuple(requests.get(f"{server.url}/{path}/{page}.php", timeout=60).json() for page in ("index", "home"))

        own, distribution, named = (seen_by(path) for path in ("own", "distribution", "named"))
    assert own[0][0]["user_agent"] == "one" and distribution[0][0]["user_agent"] == "" and distribution[0][3]
    assert own[1] == distribution[1] == [user.pw_dir, user.pw_name, "x", False]
    assert named[1] == ["/elsewhere", user.pw_name, False, False]


@pytest.mark.skipif(not ROOT, reason="only root has files that PHP's user may not read")
@pytest.mark.parametrize("hidden", ["file", "directory", "php.ini"])
def test_ini_files_that_php_may_not_read_are_an_error(site: pathlib.Path, hidden: str) -> None:
    """php-fpm reads them as root. PHP passes over them, and a limit in them would not hold."""
    (site / "one/b.ini").write_text("open_basedir=/nowhere")
    key = f'php_ini = "{site}/one/b.ini"' if hidden == "php.ini" else f'php_ini_scan_dir = ["", "{site}/one"]'
    (site / "hayate.toml").write_text(f'user = "www-data"\n[[app]]\nroot = "{site}/public"\n{key}\n')
    with Hayate(config=site / "hayate.toml") as server:
        secret = site / "one" if hidden == "directory" else site / "one/b.ini"
        secret.chmod(0o700 if hidden == "directory" else 0o600)
        expected = f"user 33 of PHP cannot read {secret} (Permission denied), so PHP would pass over the settings in it"
        reloaded = server.reload()
        assert reloaded.returncode == 1 and expected in reloaded.stderr + server.log(), reloaded.stderr
        # What was before serves on, and open_basedir holds.
        assert "File not found" in requests.get(f"{server.url}/index.php", timeout=60).text
        said = check("-c", site / "hayate.toml")
        assert said.returncode == 2 and expected in said.stderr, said
        secret.chmod(0o755 if hidden == "directory" else 0o644)
        assert server.reload().returncode == 0


@pytest.mark.skipif(not ROOT, reason="only root becomes a user without a name")
def test_who_has_no_name_inherits_home_and_user(site: pathlib.Path) -> None:
    """As in a container of any user: php-fpm leaves them alone there."""
    (site / "public/home.php").write_text("<?php echo json_encode(array_map('getenv', ['HOME', 'USER']));")

    class Nameless(Hayate):
        def command(self) -> list[str]:
            os.chown(self.dir, 64322, 64322)
            return ["/usr/bin/setpriv", "--reuid=64322", "--regid=64322", "--clear-groups", *super().command()]

    config = f'[[app]]\nroot = "{site}/public"\ninherit_env = "*"\n'
    with Nameless(config=config, env={"HOME": "/elsewhere", "USER": "somebody"}) as server:
        assert requests.get(f"{server.url}/home.php", timeout=60).json() == ["/elsewhere", "somebody"]


@pytest.mark.skipif(not ROOT, reason="only root has files that PHP's user may not read")
def test_php_looks_for_php_ini_in_each_place_before_it_takes_another_name(site: pathlib.Path) -> None:
    """So one with the SAPI's own name counts wherever it is; what comes after the one that is taken does not count."""
    for name in ("a", "b"):
        (site / name).mkdir()
    (site / "a/php.ini").write_text("user_agent=a")
    (site / "b/php-hayate.ini").write_text("user_agent=b")
    (site / "b/php-hayate.ini").chmod(0o600)
    (site / "hayate.toml").write_text(f'user = "www-data"\n[[app]]\nroot = "{site}/public"\n')
    said = check("-c", site / "hayate.toml", env={"PHPRC": f"{site}/a:{site}/b"})
    assert said.returncode == 2 and f"cannot read {site}/b/php-hayate.ini (Permission denied)" in said.stderr, said
    (site / "b/php-hayate.ini").chmod(0o644)
    (site / "a/php.ini").chmod(0o600)
    said = check("-c", site / "hayate.toml", env={"PHPRC": f"{site}/a:{site}/b"})
    assert said.returncode == 0 and f"{site}/b/php-hayate.ini" in said.stdout, said


def check(*arguments: object, env: dict[str, str] = {}) -> subprocess.CompletedProcess[str]:
    command = [str(hayate_binary()), "check", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **env})


def test_check_names_ini_files_and_extensions(site: pathlib.Path) -> None:
    said = check(site, "--php", PHP_VERSION, env={"PHP_INI_SCAN_DIR": f":{site}/one:{site}/two"})
    assert said.returncode == 0, said.stderr
    lines = [line.strip() for line in said.stdout.splitlines()]
    assert f"{site}/one/a.ini" in lines and f"{site}/two/a.ini" in lines, said.stdout
    assert f"php         PHP {PHP_VERSION}." in said.stdout
    (extensions,) = [line for line in lines if line.startswith("extensions")]
    assert " Core " in extensions


@pytest.mark.skipif(not ROOT, reason="only root may be told so")
def test_check_says_that_php_would_be_root(site: pathlib.Path) -> None:
    assert "PHP runs as root; set `user`" in check(site).stdout
    assert "PHP runs as root" not in check(site, "--user", "www-data").stdout


def test_check_starts_php_once_for_all_applications_with_the_same_settings(site: pathlib.Path) -> None:
    """And asks a host for its version once."""
    host, starts = site / "hayate-php", site / "starts"
    host.write_text(f'#!/bin/sh\necho "$@" >>{starts}\nexec {hayate_binary().parent}/hayate-php{PHP_VERSION} "$@"\n')
    host.chmod(0o755)
    text = ""
    for i in range(6):
        (site / f"app{i}").mkdir()
        text += f'[[app]]\nname = "app{i}"\npath = "/{i}"\nroot = "app{i}"\nphp = "{host}"\n'
        text += 'ini = { "memory_limit" = "9M" }\n' if i == 5 else ""
    (site / "hayate.toml").write_text(text)
    said = check("--config", site / "hayate.toml")
    assert said.returncode == 0, said.stderr
    assert said.stdout.count("extensions  ") == said.stdout.count(f"php         PHP {PHP_VERSION}.") == 6
    lines = starts.read_text().splitlines()
    assert len([line for line in lines if line == "--version"]) == 1 and len(lines) == 3, lines


def test_check_warns_of_an_old_release(site: pathlib.Path) -> None:
    """Of the PHP that runs, which a later or an earlier library may be than the host was built for."""
    host = site / "hayate-php8.4"
    host.write_text(
        f"#!/bin/sh\n[ \"$1\" = --version ] && {{ {hayate_binary().parent}/hayate-php{PHP_VERSION} --version | sed 's/PHP [0-9.]*/PHP 8.4.30/'; exit; }}\n"
        "echo tracking=uffd; echo php=8.4.27; echo ini=/etc/php.ini; echo extension=Core\n"
    )
    host.chmod(0o755)
    said = check(site, "--php", host).stdout
    assert "PHP 8.4.27 is what is installed" in said, said
    assert "warning     PHP 8.4.27 lacks security repairs of PHP 8.4.28" in said, said


#: As if it were years later, for whoever asks libc.
LATER = """
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *now)
{
    long failed = syscall(SYS_clock_gettime, clock, now);
    if (clock == CLOCK_REALTIME) { now->tv_sec += 5L * 366 * 86400; }
    return failed;
}
"""


def warned(server: Hayate, of: str) -> list[str]:
    """What the log warns of, with this in it; it is said when PHP has booted."""
    assert requests.get(server.url, timeout=60).status_code == 200

    def said() -> list[str]:
        return re.findall(rf"WARN (?:\S+: )?((?:PHP|php\.net) .*{re.escape(of)}.*)", server.log())

    wait_until(said)
    return said()


def test_the_log_warns_of_an_old_release(site: pathlib.Path) -> None:
    """As a library says whose release is an earlier one."""
    host = hayate_binary().parent / f"hayate-php{PHP_VERSION}"
    linked = subprocess.run(["ldd", host], capture_output=True, text=True, check=True).stdout
    (library,) = re.findall(r"^\s*(libphp\S*) => (\S+)", linked, re.MULTILINE)
    installed = pathlib.Path(library[1]).read_bytes()
    release = re.search(rb"X-Powered-By: PHP/(%s\.\d+)\0" % re.escape(PHP_VERSION).encode(), installed)
    assert release, "PHP's version is not where it was"
    old = release[1].rpartition(b".")[0] + b"." + b"1" * len(release[1].rpartition(b".")[2])
    (site / library[0]).write_bytes(installed[: release.start(1)] + old + installed[release.end(1) :])
    wrapper = site / "hayate-php"
    wrapper.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={site} exec {host} "$@"\n')
    wrapper.chmod(0o755)
    with Hayate(site, args=("--php", str(wrapper)), workers=1) as server:
        (warning,) = warned(server, "lacks security repairs")
        assert warning.startswith(f"PHP {old.decode()} lacks security repairs of PHP {PHP_VERSION}."), warning


def test_editors_know_each_function() -> None:
    """By php/stubs."""
    root = pathlib.Path(__file__).parents[2]
    table = re.search(r"hayate_functions\[\] = \{(.*?)ZEND_FE_END", (root / "host/functions.c").read_text(), re.DOTALL)
    functions = set(re.findall(r"ZEND_(?:FE|FALIAS)\((\w+)", table[1]))
    assert functions == set(re.findall(r"(?m)^function (\w+)\(", (root / "php/stubs/hayate.php").read_text()))


def test_a_host_is_run_by_the_library_of_its_own_version(site: pathlib.Path) -> None:
    """All of Debian's call themselves libphp.so: where there were two, either was taken for each host."""
    host = hayate_binary().parent / f"hayate-php{PHP_VERSION}"
    (site / "libphp.so").write_text("of another PHP")
    done = subprocess.run([host, "--version"], capture_output=True, text=True, check=False, env={"LD_LIBRARY_PATH": str(site)})
    assert done.stdout.startswith(f"PHP {PHP_VERSION}."), done


@pytest.mark.parametrize(
    "says, why",
    [
        (r"s/layout \d+/layout 1/", "is of another version of Hayate"),
        (r"s/PHP [\d.]+/PHP 8.1.2/", "was made for PHP 8.1.2, and is run by the library of PHP"),
    ],
    ids=["layout", "library"],
)
def test_check_refuses_a_host_that_does_not_fit(site: pathlib.Path, says: str, why: str) -> None:
    """As after half of an upgrade: it could be served, in check's words."""
    host = hayate_binary().parent / f"hayate-php{PHP_VERSION}"
    wrapper = site / "hayate-php"
    wrapper.write_text(f'#!/bin/sh\n[ "$1" = --version ] || exec {host} "$@"\n{host} --version | perl -pe \'{says}\'\n')
    wrapper.chmod(0o755)
    done = subprocess.run([hayate_binary(), "check", str(site), "--php", str(wrapper)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and why in done.stderr and "This can be served" not in done.stdout, done


def test_the_log_warns_of_a_version_whose_support_has_ended(site: pathlib.Path) -> None:
    (site / "later.c").write_text(LATER)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", site / "later.so", site / "later.c"], check=True)
    with Hayate(site, args=("--php", PHP_VERSION), workers=1, env={"LD_PRELOAD": str(site / "later.so")}) as server:
        (warning,) = warned(server, "has made no security releases")
        assert f"releases of PHP {PHP_VERSION} since 20" in warning, warning


@pytest.mark.parametrize("version, says", [("8.3", "there is no hayate-php8.3"), ("9.9", "there is no hayate-php9.9"), ("new", "is no PHP version")])
def test_a_version_that_is_missing_is_named_with_its_remedy(site: pathlib.Path, version: str, says: str) -> None:
    said = check(site, "--php", version)
    assert said.returncode == 2 and says in said.stderr, said.stderr
    if version == "9.9":
        assert "Hayate knows PHP 8.2" in said.stderr and f"(of others: {PHP_VERSION}" in said.stderr, said.stderr
    if version == "8.3":
        assert "php8.3-dev" in said.stderr, said.stderr


def test_an_application_loads_several_extensions_and_check_names_those_that_are_missing(site: pathlib.Path) -> None:
    """What the ini files load is left out: the configuration says it all."""
    (site / "public/index.php").write_text("<?php echo json_encode([extension_loaded('ctype'), extension_loaded('shmop')]);")
    (site / "composer.json").write_text('{"require": {"php": ">=99", "ext-ctype": "*", "ext-sysvmsg": "*"}}')
    (site / "empty").mkdir()
    config = f"""
        [[app]]
        root = "{site}"
        php_ini_scan_dir = "{site}/empty"
        [app.ini]
        extension = ["ctype", "shmop"]
    """
    with Hayate(config=config) as server:
        assert requests.get(server.url + "/index.php", timeout=60).json() == [True, True]
    (site / "hayate.toml").write_text(config.replace('"shmop"', '"shmop", "nonesuch"'))
    said = check("--config", site / "hayate.toml", "--php", PHP_VERSION)
    assert said.returncode == 0, said.stderr
    warnings = [line for line in said.stdout.splitlines() if "is not loaded" in line]
    assert len(warnings) == 2, said.stdout
    assert "extension = nonesuch" in warnings[0] and f"apt install php{PHP_VERSION}-nonesuch" in warnings[0]
    assert "composer.json requires ext-sysvmsg" in warnings[1]
    assert "composer.json requires PHP >=99, and this is " in said.stdout


def test_an_application_inherits_the_variables_that_are_named(site: pathlib.Path) -> None:
    (site / "public/index.php").write_text(
        "<?php $names = ['APP_ENV', 'APP_KEY', 'DATABASE_URL', 'SECRET_OF_OTHERS'];"
        "echo json_encode([array_map('getenv', $names), $_SERVER['APP_KEY'] ?? null]);"
    )
    given = {"APP_ENV": "dev", "APP_KEY": "k=1 2", "DATABASE_URL": "a://b", "SECRET_OF_OTHERS": "x"}
    config = f"""
        [[app]]
        root = "{site}"
        inherit_env = ["APP_*", "DATABASE_URL", "NONE_SUCH"]
        [app.env]
        APP_ENV = "prod"
    """
    with Hayate(config=config, env=given) as server:
        seen, of_server = requests.get(server.url + "/", timeout=60).json()
        assert seen == ["prod", "k=1 2", "a://b", False] and of_server == "k=1 2"
        server.reload()
        assert requests.get(server.url + "/", timeout=60).json()[0] == seen


def test_a_header_takes_the_place_of_what_the_environment_has_by_its_name(hayate_command, tmp_path) -> None:
    """As php-fpm has it. Fault found by attack on 2026-11-27: both were joined."""
    tmp_path.chmod(0o755)
    (tmp_path / "index.php").write_text("<?php echo json_encode([$_SERVER['HTTP_X_A'] ?? null, getenv('HTTP_X_A'), $_SERVER['HTTP_X_B'] ?? null]);")
    with (
        NginxFpm(tmp_path, fpm={"env[HTTP_X_A]": "env", "env[HTTP_X_B]": "env"}) as reference,
        Hayate(tmp_path, args=["--env", "HTTP_X_A=env", "--env", "HTTP_X_B=env"]) as server,
    ):
        for sent in ({}, {"X-A": "header"}):
            right = requests.get(f"{reference.url}/index.php", headers=sent).json()
            assert requests.get(f"{server.url}/index.php", headers=sent).json() == right
            assert right[2] == "env" and right[0] == sent.get("X-A", "env")
        with socket.create_connection(("127.0.0.1", server.port), 10) as visitor:
            visitor.sendall(b"GET /index.php HTTP/1.1\r\nHost: a\r\nX-A: 1\r\nX-B: 2\r\nX-A: 3\r\nConnection: close\r\n\r\n")
            answer = b"".join(iter(lambda: visitor.recv(65536), b""))
        assert b'["1, 3","1, 3","2"]' in answer


def starting(site: pathlib.Path, settings: str, preloaded: str = "", more: str = "") -> subprocess.CompletedProcess[str]:
    """What `hayate check` says of an application with a php.ini of its own, as the user that it is served as."""
    site.chmod(0o755)
    (site / "php.ini").write_text(settings + (f"\nopcache.preload = {site}/preload.php\n" if preloaded else ""))
    (site / "preload.php").write_text(f"<?php {preloaded}")
    (site / "hayate.toml").write_text(f'[[app]]\nroot = "{site}"\nphp_ini = "{site}/php.ini"\n{more}')
    return check("--config", site / "hayate.toml", "--php", PHP_VERSION)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_check_asks_php_as_the_applications_user(site: pathlib.Path) -> None:
    """Whoever owns php.ini would have been root: by an extension, by what is preloaded, by the place of a log."""
    noted = site / "noted"
    noted.mkdir()
    noted.chmod(0o777)
    preloaded = f"file_put_contents('{noted}/who', posix_geteuid() . ' ' . getenv('HOME')); echo \"tracking=none\\nphp=9.9.9\\nextension=forged\\n\";"
    said = starting(site, f"error_log = {noted}/log\nextension = nonesuch", preloaded, 'user = "www-data"')
    www = pwd.getpwnam("www-data")
    assert said.returncode == 0, said.stderr
    assert (noted / "who").read_text() == f"{www.pw_uid} {www.pw_dir}"
    assert not any(word in said.stdout for word in ("9.9.9", "forged", "none\n")), said.stdout
    assert not (noted / "log").exists() and "Unable to load dynamic library 'nonesuch'" in said.stdout, said.stdout


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("log_errors = 0\nextension = nonesuch", "Unable to load dynamic library 'nonesuch'"),
        ("extension = nonesuch", "Unable to load dynamic library 'nonesuch'"),
        ("memory_limit = 1G\n[PHP\nx = (", "syntax error"),
    ],
    ids=["log-off", "nothing-said", "syntax"],
)
def test_check_says_what_php_finds_wrong_whatever_is_logged(site: pathlib.Path, settings: str, says: str) -> None:
    said = starting(site, settings)
    warning = [line for line in said.stdout.splitlines() if says in line]
    assert said.returncode == 0 and len(warning) == 1 and warning[0].startswith("  warning     PHP"), said.stdout


@pytest.mark.parametrize(
    ("preloaded", "says"),
    [
        ("throw new Exception('no such thing');", "Uncaught Exception: no such thing"),
        ("error_log(str_repeat('x', 9 << 20)); exit(3);", "PHP does not start: xxx"),
        ("sleep(600);", "it takes longer than 3 s (boot_timeout)"),
        ("exec('sleep 600 >/dev/null &'); posix_kill(getmypid(), 11);", "it ended with signal: 11"),
    ],
    ids=["throws", "exits", "hangs", "crashes"],
)
def test_check_says_why_php_does_not_start(site: pathlib.Path, preloaded: str, says: str) -> None:
    begun = time.monotonic()
    user = 'user = "www-data"\n' if os.geteuid() == 0 else ""
    said = starting(site, "", preloaded, user + 'boot_timeout = "3s"')
    assert said.returncode == 2 and says in said.stderr, said.stdout + said.stderr
    assert said.stderr.startswith("hayate: ") and "PHP does not start: " in said.stderr and len(said.stderr) < 2000, said.stderr
    assert "This can be served." not in said.stdout and time.monotonic() - begun < 60


FIXED = """<?php
echo json_encode([ini_get('memory_limit'), ini_set('memory_limit', '1G'), ini_get('memory_limit'), ini_get('user_agent'), ini_set('user_agent', 'x'),
    set_time_limit(7), ini_get('max_execution_time'), ini_set('display_errors', '1'), function_exists('shell_exec'),
    ini_restore('memory_limit'), ini_get('memory_limit')]);
"""


@pytest.mark.parametrize("mode", ["classic", "on", "fork", "off"])
def test_settings_of_the_administrator_stay_as_with_php_fpm(site: pathlib.Path, mode: str) -> None:
    """What `php_admin_value` is there: neither code nor .user.ini changes it, in no request, the second one included."""
    (site / "public/index.php").write_text(FIXED)
    (site / "public/.user.ini").write_text('memory_limit = 2G\nuser_agent = "of .user.ini"\n')
    (site / "worker.php").write_text("<?php while (hayate_handle_request(function () { include __DIR__ . '/public/index.php'; }));")
    fixed = {"memory_limit": "64M", "user_agent": "fixed", "max_execution_time": "20", "display_errors": "0", "disable_functions": "shell_exec"}
    with NginxFpm(site / "public", fpm={f"php_admin_value[{name}]": value for name, value in fixed.items()}) as peer:
        expected = seen(peer)
    table = "".join(f'{name} = "{value}"\n' for name, value in fixed.items())
    worker = "" if mode == "classic" else f'mode = "worker"\nworker = "{site}/worker.php"\nrewind = "{mode}"\n'
    config = f'[[app]]\nroot = "{site}"\nworkers = 1\n{worker}[app.ini]\nmemory_limit = "32M"\n[app.admin_ini]\n{table}'
    with Hayate(config=config) as server:
        assert [seen(server) for _ in range(3)] == [expected] * 3


#: What must not end what PHP reads of the settings, nor be read as anything but itself.
AWKWARD = [
    "Shop (EU) <a@b.c>", "Mozilla/5.0 (compatible; Bot)", "pass^word!", '/a"b', "a;b", "# a", "it's", "'", "''", '"', "a\nb=c\n[PATH=/]\nd", "${HOME}",
    '"${HOME}"', "$a", "a=b", " a ", "a\\", "\\'", "(((", "E_ALL &", "E_ALL &\n1", "yes & no", "none|1", "R&D", "~", "[x]", "{}", "a\tb", "\u00e9\U0001f600", "a" * 5000, "'" * 300,
]


def test_values_of_settings_are_what_they_are(site: pathlib.Path) -> None:
    names = [f"x{i}.y" for i in range(len(AWKWARD))]
    page = "<?php echo json_encode([array_map('get_cfg_var', json_decode($_GET['names'])), ini_get('user_agent'), ini_get('disable_functions'), ini_get('error_reporting')]);"
    (site / "public/index.php").write_text(page)
    lines = "\n".join(f'"{name}" = {json.dumps(value, ensure_ascii=False)}' for name, value in zip(names, AWKWARD, strict=True))
    fixed = 'disable_functions = "exec,system"\nuser_agent = "it\'s (me)"\nerror_reporting = "E_ALL & ~(E_NOTICE | E_STRICT)"'
    config = f'[[app]]\nroot = "{site}/public"\n[app.ini]\n{lines}\n[app.admin_ini]\n{fixed}\n'
    (site / "hayate.toml").write_text(config)
    with Hayate(config=site / "hayate.toml", args=["--ini", "last=It's (here)"]) as server:
        asked = {"names": json.dumps([*names, "last"])}
        found, *settings = requests.get(server.url + "/index.php", params=asked, timeout=60).json()
        assert found == [*AWKWARD, "It's (here)"]
        assert settings == ["it's (me)", "exec,system", str(32767 & ~(8 | 2048))]
        assert "syntax error" not in server.log()
    said = check("-c", site / "hayate.toml")
    assert said.returncode == 0 and "syntax error" not in said.stdout


@pytest.mark.parametrize("name", ["' memory_limit'", "'a b'", "'a=b'", "'[PATH=/]'", '"a\\nb"', "'a;'", "''"])
@pytest.mark.parametrize("table", ["ini", "admin_ini"])
def test_names_that_no_setting_has_are_refused(site: pathlib.Path, table: str, name: str) -> None:
    (site / "hayate.toml").write_text(f'[[app]]\nroot = "{site}/public"\n[app.{table}]\n{name} = "1"\n')
    said = check("-c", site / "hayate.toml")
    assert said.returncode == 2 and "hayate.toml:4: " in said.stderr and "is no name of a setting of php.ini" in said.stderr, said.stderr


def test_sections_of_php_ini_for_directories_are_as_with_php_fpm(site: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("", "sub", "sub/below"):
        (site / "public" / place).mkdir(exist_ok=True)
        (site / "public" / place / "page.php").write_text("<?php echo json_encode(array_map('ini_get', ['user_agent', 'error_prepend_string', 'open_basedir']));")
    (site / "one/a.ini").write_text(
        f'[PATH={site}/public]\nuser_agent=root\n[PATH={site}/public/sub]\nerror_prepend_string=sub\nopen_basedir={site}\n'
    )
    monkeypatch.setenv("PHP_INI_SCAN_DIR", f":{site}/one")
    pages = ["/page.php", "/sub/page.php", "/sub/below/page.php"]
    with NginxFpm(site / "public") as fpm:
        expected = [requests.get(fpm.url + page, timeout=60).text for page in pages]
    with Hayate(site / "public") as server:
        assert [requests.get(server.url + page, timeout=60).text for page in pages] == expected
    assert '"root"' in expected[0] and str(site.name) in expected[1]
