"""`hayate check` says what would keep a server from starting, or from serving, and ends as `hayate serve` would."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from lib.process import free_port, temporary_directory
from lib.servers import ROOT, hayate_binary
from lib.tls import self_signed

from . import frameworks

pytestmark = pytest.mark.skipif(not ROOT, reason="only root changes to other users")
USER = "www-data"


@pytest.fixture
def place() -> Iterator[pathlib.Path]:
    # Not pytest's, whose rights another run changes.
    place = temporary_directory("check")
    (place / "outer/site").mkdir(parents=True)
    (place / "outer/site/index.php").write_text("<?php echo 'fine';")
    (place / "logs").mkdir()
    for path in [place, *place.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    yield place
    shutil.rmtree(place)


class Said:
    def __init__(self, place: pathlib.Path, top: str = "", app: str = "", *flags: str, tls: bool = False) -> None:
        config = place / "hayate.toml"
        address = f'"127.0.0.1:{free_port()}"'
        listen = f"[{{ address = {address}, tls = true }}]" if tls else address
        config.write_text(
            f'listen = {listen}\ncontrol = "c.sock"\nuser = "{USER}"\n{top}\n[[app]]\nroot = "{place}/outer/site"\n{app}\n'
        )
        for command in ("check", "serve"):
            line = [str(hayate_binary()), command, "--config", str(config), *flags]
            # A server that starts is told to end by `timeout`, and ends with 124 then.
            done = subprocess.run(["timeout", "4", *line], capture_output=True, text=True, timeout=60, check=False)
            setattr(self, command, done)
        self.text = self.check.stdout + self.check.stderr

    def agree(self) -> bool:
        """Whether both take it, or neither does."""
        serves = self.serve.returncode == 124
        return (self.check.returncode == 0) == serves and ("This can be served" in self.check.stdout) == serves


def test_a_fine_one(place: pathlib.Path) -> None:
    (place / "logs").chmod(0o777)
    said = Said(place, f'access_log = "{place}/logs/access.log"\npid_file = "{place}/pid"')
    assert said.agree() and said.check.returncode == 0, said.text
    # It is the server that makes it.
    (place / "logs/access.log").unlink()
    check = [str(hayate_binary()), "check", "--config", str(place / "hayate.toml")]
    assert subprocess.run(check, capture_output=True, timeout=60, check=False).returncode == 0
    assert not (place / "logs/access.log").exists()


@pytest.mark.parametrize(
    ("log", "why"),
    [
        ("missing/access.log", "there is no directory {place}/missing; make it"),
        ("logs/access.log", "cannot make {place}/logs/access.log: {place}/logs: Permission denied"),
        ("logs", "it is a directory"),
        ("hayate.toml", "cannot write {place}/hayate.toml: Permission denied"),
    ],
)
def test_an_access_log_that_cannot_be_written(place: pathlib.Path, log: str, why: str) -> None:
    said = Said(place, f'access_log = "{place}/{log}"')
    assert said.agree() and said.check.returncode == 2, said.text
    assert f"{place}/hayate.toml:4: access_log: the front, which runs as {USER} (uid " in said.check.stderr
    assert why.format(place=place) in said.check.stderr, said.text
    assert "access_log names a file" in said.serve.stderr and "makes no sense" not in said.serve.stderr, said.serve.stderr


def test_a_flag_is_named_as_a_flag(place: pathlib.Path) -> None:
    said = Said(place, "", "", "--access-log", f"{place}/missing/x")
    assert said.agree() and "hayate: --access-log: the front" in said.check.stderr, said.text


def test_a_pid_file_that_cannot_be_written(place: pathlib.Path) -> None:
    said = Said(place, f'pid_file = "{place}/missing/pid"')
    assert said.agree() and f"{place}/hayate.toml:4: pid_file: " in said.check.stderr, said.text


def test_a_root_that_php_cannot_enter(place: pathlib.Path) -> None:
    (place / "outer").chmod(0o700)
    said = Said(place)
    assert said.agree() and said.check.returncode == 2, said.text
    assert f"{place}/hayate.toml:6: root: PHP of 'site', which runs as {USER} (uid " in said.check.stderr
    assert f"{place}/outer: Permission denied" in said.check.stderr and f"let that user enter {place}/outer" in said.check.stderr


def test_a_root_that_is_not_there(place: pathlib.Path) -> None:
    said = Said(place, "", f'[[app]]\nname = "b"\npath = "/b"\nroot = "{place}/nowhere"')
    assert said.check.returncode == 2 and f"hayate.toml:10: root: cannot use the directory {place}/nowhere" in said.check.stderr, said.text


def test_a_worker_script_that_php_cannot_read(place: pathlib.Path) -> None:
    script = place / "outer/worker.php"
    script.write_text("<?php while (hayate_handle_request(function () { echo 1; })) {}")
    script.chmod(0o600)
    said = Said(place, "", f'worker = "{script}"')
    assert said.agree() and f"hayate.toml:7: worker: PHP of 'site'" in said.check.stderr and "Permission denied" in said.check.stderr, said.text


def test_what_only_requests_would_meet_is_a_warning(place: pathlib.Path) -> None:
    (place / "outer/site/index.php").chmod(0o600)
    said = Said(place)
    assert said.agree() and said.check.returncode == 0, said.text
    assert f"warning       requests to 'site' would get 403: PHP, which runs as {USER}" in said.check.stdout
    (place / "outer/site/index.php").chmod(0o644)
    (place / "outer").chmod(0o750)
    shutil.chown(place / "outer", USER)
    said = Said(place, 'front_user = "nobody"')
    assert said.agree() and "the front, which runs as nobody" in said.check.stdout and f"cannot enter {place}/outer/site" in said.check.stdout, said.text


def test_settings_that_php_does_not_know_are_named(place: pathlib.Path) -> None:
    said = Said(place, "", '[app.ini]\nmemory_limt = "1M"\n"my.own" = "x"\nextension = []\n"session.name" = "X"')
    lines = [line for line in said.check.stdout.splitlines() if "warning     ini: " in line]
    assert said.check.returncode == 0 and len(lines) == 2, said.text
    assert any("knows 'memory_limt'; did you mean memory_limit?" in line for line in lines)
    assert any("'my.own'" in line and "get_cfg_var()" in line for line in lines)
    log = said.serve.stdout + said.serve.stderr
    assert log.count("ini: neither PHP nor") == 2 and "'memory_limt'" in log and "'my.own'" in log, log


def test_of_an_htaccess_that_somebody_has_seen_nothing_more_is_said(place: pathlib.Path) -> None:
    site = place / "outer/site"
    texts = {"": "RewriteRule \\.sql$ - [F]", "names": '<FilesMatch "\\.txt$">\nRequire all denied\n</FilesMatch>', "files": "php_flag engine off",
             "closed": "Require all denied"}
    for folder, text in texts.items():
        (site / folder).mkdir(exist_ok=True)
        (site / folder / ".htaccess").write_text(text + "\n")
    said = Said(place)
    for words in ('htaccess_seen = ["/names"]', 'htaccess_seen = ["/files"]', 'htaccess_seen = ["/"]', 'deny = ["/closed"]'):
        assert words in said.check.stdout and words in said.serve.stdout + said.serve.stderr, (words, said.text)
    said = Said(place, "", 'htaccess_seen = ["/", "/names", "/files", "/closed"]')
    assert "htaccess" not in said.check.stdout, said.text
    said = Said(place, "", 'htaccess_seen = ["names"]')
    assert said.check.returncode == 2 and "htaccess_seen: 'names' must begin with a slash" in said.check.stderr, said.text


@pytest.mark.parametrize("make", [frameworks.laravel, lambda place: frameworks.symfony(place, runtime=True)], ids=["laravel", "symfony"])
def test_directories_that_the_framework_cannot_write_to_are_named(place: pathlib.Path, make) -> None:
    project = make(place / "outer")
    told = {"laravel": ["storage", "storage/framework/sessions", "storage/framework/views", "storage/logs", "bootstrap/cache"], "symfony": ["var"]}
    told = [project / below for below in told[project.name]]
    [directory.mkdir(parents=True, exist_ok=True) for directory in told]
    shutil.rmtree(project / "var/cache", ignore_errors=True)
    command = [hayate_binary(), "check", project, "--user", USER]
    def warnings() -> list[str]:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return [line for line in done.stdout.splitlines() if "may not write to" in line]
    assert [" and ".join(map(str, told)) in line for line in warnings()] == [True], warnings()
    for directory in told:
        shutil.chown(directory, USER)
    assert warnings() == []


def test_folders_that_kirbys_rules_close_are_named(place: pathlib.Path) -> None:
    site = place / "outer/site"
    for folder in ("content", "kirby", "media", "site"):
        (site / folder).mkdir()
    rules = "".join(f"RewriteRule ^{folder}/(.*) index.php [L]\n" for folder in ("content", "site", "kirby"))
    last = "RewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule ^(.*) index.php [L]\n"
    (site / ".htaccess").write_text(f"<IfModule mod_rewrite.c>\n{rules}{last}</IfModule>\n")
    said = Said(place)
    assert 'deny = ["/content", "/kirby", "/site"]' in said.check.stdout, said.text
    assert "closes directories for Apache" in said.serve.stderr + said.serve.stdout
    said = Said(place, "", 'deny = ["/content", "/kirby", "/site"]')
    assert ".htaccess below" not in said.check.stdout, said.text
    said = Said(place, "", '[[app.rule]]\npath = ["/content", "/kirby", "/site"]\nrewrite = "/index.php"')
    assert ".htaccess below" not in said.check.stdout, said.text


def test_a_document_root_that_php_may_not_enter(place: pathlib.Path) -> None:
    # www-data serves and may; nobody runs PHP and may not.
    (place / "outer/public").mkdir()
    (place / "outer/public/index.php").write_text("<?php echo 'fine';")
    (place / "outer/public").chmod(0o750)
    shutil.chown(place / "outer/public", USER, USER)
    said = Said(place, f'front_user = "{USER}"', f'document_root = "{place}/outer/public"\nuser = "nobody"')
    assert said.agree() and f"cannot enter {place}/outer/public" in said.check.stdout and "PHP, which runs as nobody" in said.check.stdout, said.text


def test_a_log_by_a_link_that_leads_to_nothing_yet(place: pathlib.Path) -> None:
    (place / "logs").chmod(0o777)
    for name in ("access", "pid"):
        (place / f"logs/{name}").symlink_to(f"{name}.made")
    said = Said(place, f'access_log = "{place}/logs/access"\npid_file = "{place}/logs/pid"')
    assert said.agree() and said.check.returncode == 0, said.text


@pytest.mark.parametrize(
    ("top", "app", "word"),
    [
        ('access_log = "{place}/logs/new.log/"', "", "ends in a slash"),
        ('access_log = "{place}/logs/a\\u0000b"', "", "NUL"),
        ("", '[app.env]\nA = "a\\u0000b"', "NUL"),
        ("", '[app.ini]\nmemory_limit = "1\\u0000b"', "NUL"),
        ("", 'php = "/bin/true"', "no host of Hayate"),
        ('metrics = "{listen}"', "", "is an address of listen as well"),
    ],
    ids=["a slash", "NUL in a path", "NUL in env", "NUL in ini", "no host", "metrics"],
)
def test_what_serve_refuses(place: pathlib.Path, top: str, app: str, word: str) -> None:
    (place / "logs").chmod(0o777)
    if "{listen}" in top:
        listen = f"127.0.0.1:{free_port()}"
        flags = ("--listen", listen)
        said = Said(place, top.format(listen=listen), app, *flags)
    else:
        said = Said(place, top.format(place=place), app)
    assert said.agree() and said.check.returncode == 2 and word in said.check.stderr, said.text


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (("--listen", "{place}/hayate.toml"), "unix:{place}/hayate.toml: expected a socket, or nothing, found a file that is none"),
        (("--listen", "unix:"), "unix: is followed by a path"),
        (("--listen", "unix:{place}/" + "s" * 108), "bytes at most"),
        (("--control", "{place}/" + "s" * 108), "bytes at most"),
        (("--pid-file", "{place}/" + "s" * 256), "expected a name of 255 bytes at most"),
        (("--metrics", "unix:{place}/m.sock"), 'expected a TCP address such as "127.0.0.1:9090", found "unix:{place}/m.sock"'),
    ],
    ids=["a file", "no path", "a long address", "a long control socket", "a long pid file", "metrics"],
)
def test_what_serve_cannot_bind(place: pathlib.Path, flags: tuple[str, ...], word: str) -> None:
    said = Said(place, "", "", *(flag.format(place=place) for flag in flags))
    assert said.agree() and said.check.returncode == 2 and word.format(place=place) in said.check.stderr, said.text


def test_a_socket_in_a_directory_that_is_not_there_may_be_handed_in(place: pathlib.Path) -> None:
    """A service manager makes both; so that is a warning."""
    said = Said(place, "", "", "--listen", f"unix:{place}/missing/web.sock")
    assert said.check.returncode == 0 and f"listen: uid 0 (who started this) cannot write {place}/missing/web.sock" in said.check.stdout, said.text
    assert said.serve.returncode == 1, said.text


def test_a_storage_of_certificates_that_holds_something_of_roots_is_not_given_away(place: pathlib.Path) -> None:
    """The fault: /etc/ssl, named by who came from certbot, belonged to the process that faces the network."""
    storage = place / "storage"
    top = f'[tls]\nacme = "on"\nacme_directory = "https://127.0.0.1:1/dir"\nacme_storage = "{storage}"\n'
    app = 'hosts = ["a.example"]'
    for name in ("private/key.pem", "file"):
        (storage / name).parent.mkdir(parents=True, exist_ok=True)
        (storage / name).touch()
    said = Said(place, top, app, tls=True)
    assert said.agree() and "holds something already" in said.text and "holds something already" in said.serve.stderr, said.text
    assert storage.owner() == "root"
    shutil.rmtree(storage)
    storage.touch()
    said = Said(place, top, app, tls=True)
    assert said.agree() and "acme_storage" in said.text, said.text
    storage.unlink()
    for make in (lambda: None, storage.mkdir):
        make()
        said = Said(place, top, app, tls=True)
        assert said.agree() and said.serve.returncode == 124, said.text + said.serve.stderr
        assert storage.owner() != "root"
        # It holds what the server keeps there, and is served with again.
        said = Said(place, top, app, tls=True)
        assert said.agree() and said.serve.returncode == 124, said.text + said.serve.stderr
        shutil.rmtree(storage)


def test_certificates_that_no_authority_would_give(place: pathlib.Path) -> None:
    config, storage = place / "hayate.toml", place / "storage"
    (storage / "acme-v02.api.letsencrypt.org_directory/challenges").mkdir(parents=True)
    shutil.chown(storage, USER)

    def doubts(more: str, *hosts: str) -> list[str]:
        listen = f'{{ address = "127.0.0.1:{free_port()}", tls = true }}'
        tls = f'[tls]\nacme = "on"\nacme_storage = "{storage}"\n{more}\n'
        config.write_text(f'listen = [{listen}]\nuser = "{USER}"\n{tls}[[app]]\nroot = "{place}/outer/site"\nhosts = {json.dumps(hosts)}\n')
        said = strictly(config)
        assert said.returncode == 0, said.stderr
        return [line.strip() for line in said.stdout.splitlines() if re.search("certificate|port 80|acme_storage", line) and "warning" in line]

    found = doubts("", "a.example.org", "under_score.example.org", "b", "c.local")
    assert len(found) == 5 and "on port 80, by plain HTTP, and no address of listen speaks it" in found[0], found
    for host, line in zip(("b", "c.local", "under_score.example.org"), sorted(found[1:4]), strict=True):
        assert f"{host} gets no certificate: a public authority gives none" in line, found
    assert f"acme_storage: {storage}/acme-v02.api.letsencrypt.org_directory belongs to somebody else" in found[4], found
    shutil.chown(storage / "acme-v02.api.letsencrypt.org_directory", USER)
    assert doubts('acme_challenge = "tls-alpn-01"', "a.example.org") == []
    # An authority of one's own gives what it likes.
    assert doubts('acme_challenge = "tls-alpn-01"\nacme_directory = "https://ca.internal/directory"', "b", "c.local") == []


def strictly(config: pathlib.Path, *flags: str) -> subprocess.CompletedProcess[str]:
    line = [str(hayate_binary()), "check", "--config", str(config), *flags]
    return subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("what", ["nothing", "an extension of composer.json", "a certificate for others"])
def test_strict_takes_no_warning(place: pathlib.Path, what: str) -> None:
    config, site = place / "hayate.toml", place / "outer/site"
    text = f'listen = ["127.0.0.1:{free_port()}"]\nuser = "{USER}"\n'
    if what == "an extension of composer.json":
        (site / "composer.json").write_text('{"require": {"ext-nowhere": "*"}}')
        (site / "vendor").mkdir()
        (site / "vendor/autoload.php").write_text("<?php")
    if what == "a certificate for others":
        self_signed(place, "others", ["others.example"])
        text = text.replace('"]', f'", {{ address = "127.0.0.1:{free_port()}", tls = true }}]', 1)
        text += f'[[tls.certificates]]\ncertificate = "{place}/others.pem"\nkey = "{place}/others.key"\n'
    config.write_text(f'{text}[[app]]\nroot = "{site}"\nhosts = ["shop.example"]\n')
    usual, strict = strictly(config), strictly(config, "--strict")
    assert usual.returncode == 0 and usual.stdout == strict.stdout, usual.stderr
    warnings = [line for line in usual.stdout.splitlines() if line.lstrip().startswith("warning ")]
    if what == "nothing":
        # Such as a PHP that is older than the newest release.
        assert strict.returncode == (1 if warnings else 0)
    else:
        assert strict.returncode == 1 and strict.stderr == f"hayate: warnings above: {len(warnings)}; --strict takes none\n", strict.stderr
        assert warnings, usual.stdout


@pytest.mark.skipif(not ROOT, reason="only root is root")
@pytest.mark.plain("it says itself where it listens")
def test_php_as_root_is_not_for_other_machines(hayate_command, tmp_path) -> None:
    (tmp_path / "index.php").write_text("<?php")
    control = tmp_path / "control.sock"

    def run(command: str, *flags: str) -> tuple[int, str]:
        args = [hayate_command, command, tmp_path, *flags, *(["--control", control] if command == "serve" else [])]
        done = subprocess.run(args, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout + done.stderr

    # Who checks may be another user than who serves.
    for command, status in (("check", 0), ("serve", 2)):
        for flags in (["--listen", ":80"], ["--listen", "127.0.0.1:8080", "--listen", "[::]:8081"], ["--tls", "a.example"]):
            code, said = run(command, *flags)
            assert code == status and "would run as root for whoever reaches" in said and "--user www-data" in said, said
    for flags in (["--listen", "127.0.0.1:80"], ["--listen", ":80", "--user", "root"], ["--listen", ":80", "--dev"]):
        code, said = run("check", *flags)
        assert code == 0 and "would run as root" not in said, said


def warned(place: pathlib.Path, text: str) -> list[str]:
    config = place / "hayate.toml"
    config.write_text(text)
    done = strictly(config)
    assert done.returncode == 0, done.stderr
    return [line.split("warning", 1)[1].strip() for line in done.stdout.splitlines() if line.lstrip().startswith("warning ")]


def test_rules_that_cannot_be_meant_so_are_named(place: pathlib.Path) -> None:
    top = f'listen = "127.0.0.1:{free_port()}"\nuser = "{USER}"\n[[app]]\nroot = "{place}/outer/site"\npath = "/blog"\n'
    doubted = [
        ("path = '/x'\nredirect = '/x'", "rule {}: redirect: '/x' leads to a path"),
        ("regex = '^admin'\ndeny = 403", "rule {}: regex: '^admin' fits no path"),
        ("regex = '^/a%20b'\ndeny = 403", "rule {}: regex: '^/a%20b' wants a percent sign"),
        ("regex = '^/x\\?page='\ndeny = 403", "rule {}: regex: '^/x\\?page=' wants a question mark"),
        ("header = { host = 'shop.test:8080' }\ndeny = 403", "rule {}: header: host: 'shop.test:8080': a host is compared"),
        ("path = '/blog/admin'\ndeny = 403", "rule {}: path: '/blog/admin': paths are those inside"),
        ("glob = '/**.css'\ndeny = 403", "rule {}: glob: '/**.css': two stars are"),
        ("redirect = 'https://example.org$request_uri'", "rule {} is for all requests and has redirect, so"),
    ]
    fine = "[[app.rule]]\nregex = '^/admin'\nheader = { host = 'WWW' }\ndeny = 403\n"
    said = warned(place, top + "".join(f"[[app.rule]]\n{rule}\n" for rule, _ in doubted) + fine)
    for i, (_, want) in enumerate(doubted):
        assert any(line.startswith(want.format(i + 1)) for line in said), (want, said)
    assert not any(f"rule {len(doubted) + 1}" in line for line in said), said


def test_sizes_of_uploads_and_keys_in_the_wrong_place_are_named(place: pathlib.Path) -> None:
    top = f'listen = "127.0.0.1:{free_port()}"\nuser = "{USER}"\ntrusted_proxies = "0.0.0.0/0"\n[limits]\nbody_size = "300M"\n'
    app = f'[[app]]\nroot = "{place}/outer/site"\n[app.ini]\nworkers = 4\nupload_max_filesize = "500M"\npost_max_size = "400M"\n'
    said = warned(place, top + app)
    for want in [
        "trusted_proxies: 0.0.0.0/0 is everybody",
        "ini: neither PHP nor an extension that is loaded knows 'workers'; it is a key of Hayate's: write it below [[app]]",
        "upload_max_filesize (500M) is more than post_max_size (400M)",
        "post_max_size (400M) is more than a request may have (limits.body_size, 300M)",
    ]:
        assert any(line.startswith(want) for line in said), (want, said)
    said = warned(place, top + app + "[[app.rule]]\npath = '/upload'\nmax_body = '400M'\n")
    assert not any(line.startswith("post_max_size") for line in said), said
