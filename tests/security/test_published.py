"""What a document root publishes: never a configuration, never a page in place of a file that is missing."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
from collections.abc import Iterator

import pytest
import requests

from lib import client
from lib.process import temporary_directory
from lib.servers import Hayate, NginxFpm, free_port, hayate_binary

SECRET = "DATABASE_PASSWORD"


def check(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(hayate_binary()), "check", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def get(server, path: str, **headers: str) -> requests.Response:
    return requests.get(server.url + path, headers=headers, timeout=60, allow_redirects=False)


@pytest.fixture(scope="module")
def configured(hayate_command, tmp_path_factory) -> Iterator[Hayate]:
    """Its configuration has other names below the document root and below a directory for X-Sendfile."""
    directory = tmp_path_factory.mktemp("published")
    root, more = directory / "site", directory / "more"
    for each in (root / "sub", more):
        each.mkdir(parents=True)
    config, ini = directory / "app.toml", directory / "own.ini"
    ini.write_text(f"; {SECRET}\n")
    config.write_text(
        f'[[app]]\nroot = "{root}"\nsendfile_roots = "{more}"\nphp_ini = "{ini}"\n[app.env]\nSECRET = "{SECRET}"\n'
    )
    (root / "symbolic.toml").symlink_to(config)
    (root / "sub" / "hard.txt").hardlink_to(config)
    (root / "ini.txt").hardlink_to(ini)
    (more / "hard.txt").hardlink_to(config)
    (root / "sub" / "hayate.toml").write_text(SECRET)
    (root / "a.txt").write_text("a")
    (root / "a.txt.gz").symlink_to(config)
    (root / "send.php").write_text("<?php header('X-Sendfile: ' . $_GET['file']);")
    (root / "accel.php").write_text("<?php header('X-Accel-Redirect: ' . $_GET['file']);")
    (root / "fine.toml").write_text("fine")
    with Hayate(config=config, workers=1) as server:
        server.more = more
        yield server


@pytest.mark.parametrize("path", ["/symbolic.toml", "/sub/hard.txt", "/ini.txt", "/sub/hayate.toml", "/sub/%68ayate.toml"])
def test_b11_a_configuration_is_never_served_whatever_its_name(configured, path) -> None:
    for answer in (get(configured, path), get(configured, f"/accel.php?file={path}")):
        assert answer.status_code == 404 and SECRET not in answer.text
    assert get(configured, "/fine.toml").text == "fine"


def test_b11_nor_is_it_sent_for_a_script_or_as_something_packed(configured) -> None:
    answer = get(configured, f"/send.php?file={configured.more}/hard.txt")
    assert answer.status_code == 404 and SECRET not in answer.text
    sent = client.encode("GET", "/a.txt", [("Host", "a"), ("Accept-Encoding", "gzip"), ("Connection", "close")])
    assert SECRET.encode() not in client.exchange(("127.0.0.1", configured.port), sent).body


def test_b11_a_file_without_a_root_publishes_nothing(hayate_command, tmp_path) -> None:
    config = tmp_path / "hayate.toml"
    for text, said in (
        (f'listen = "127.0.0.1:{free_port()}"\n', f"{config}: it names no application"),
        ('\n[[app]]\nname = "x"\n', f"{config}:2: root is missing"),
        ('[[app]]\nroot = "."\n', f"{config}:2: root: {tmp_path} holds {config}"),
    ):
        config.write_text(text)
        for command in ("check", "serve"):
            done = subprocess.run(
                [str(hayate_binary()), command, "--config", str(config)],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 2 and said in done.stderr, done.stderr


@pytest.mark.parametrize("root", ["/", "/etc", "/root", "/home", "/var", "/proc/self"])
def test_b11_the_machine_is_not_published_with_a_file_or_without(hayate_command, tmp_path, root) -> None:
    done = check(root)
    assert done.returncode == 2 and "document_root" in done.stderr, done.stderr
    config = tmp_path / "hayate.toml"
    config.write_text(f'[[app]]\nroot = "{tmp_path}"\ndocument_root = "{root}"\n')
    done = check("--config", config)
    assert done.returncode == 2 and f"{config}:3: document_root: " in done.stderr, done.stderr


def test_b11_check_and_start_warn_of_what_looks_like_secrets(hayate_command, tmp_path) -> None:
    for name in ("index.php", "dump.sql", ".env", "wp-config.php~", "data.db", "id_rsa", "site.css"):
        (tmp_path / name).write_text("x")
    (tmp_path / "server.key").write_text("-----BEGIN PRIVATE KEY-----")
    done = check(tmp_path)
    assert done.returncode == 0, done.stderr
    # Of other things, as of an old release of PHP or of PHP as root, it may warn as well.
    warnings = [line for line in done.stdout.splitlines() if "warning" in line]
    (open_,) = (line for line in warnings if "server.key" in line)
    (hidden,) = (line for line in warnings if "dump.sql" in line)
    assert "server.key (a private key)" in open_ and "site.css" not in open_
    assert "data.db (a database)" in hidden and "id_rsa (a private key)" in hidden
    assert ".env" in hidden and "dump.sql (a dump of a database)" in hidden and "wp-config.php~" in hidden and "never sends" in hidden
    with Hayate(tmp_path, workers=1) as server:
        assert server.logged("server.key (a private key)")
        assert get(server, "/server.key").status_code == 200  # It is only a sign.
        for name in (".env", "wp-config.php~", "dump.sql", "data.db", "id_rsa"):
            assert get(server, f"/{name}").status_code == 404


LATIN = "<meta charset=iso-8859-1><p>caf\xe9".encode("latin-1")


def test_d21_no_encoding_is_forced_on_static_text(hayate_command, tmp_path) -> None:
    (tmp_path / "site").mkdir()
    for name in ("a.html", "a.css", "a.js", "a.txt", "a.svg", "a.xml", "a.json", "a.png"):
        (tmp_path / "site" / name).write_bytes(LATIN)
    with Hayate(tmp_path / "site", workers=1) as server:
        for name in ("a.html", "a.css", "a.js", "a.txt", "a.svg", "a.xml", "a.json", "a.png"):
            answer = get(server, f"/{name}")
            assert "charset" not in answer.headers["Content-Type"] and answer.content == LATIN
    with Hayate(config=f'[[app]]\nroot = "{tmp_path}/site"\ncharset = "iso-8859-1"\n', workers=1) as server:
        assert get(server, "/a.html").headers["Content-Type"] == "text/html; charset=iso-8859-1"
        assert get(server, "/a.css").headers["Content-Type"] == "text/css; charset=iso-8859-1"
        assert get(server, "/a.png").headers["Content-Type"] == "image/png"
        assert get(server, "/a.json").headers["Content-Type"] == "application/json"


APPLICATION = "<?php setcookie('visitor', 'x'); echo 'the application: ', $_SERVER['REQUEST_URI'];"
MISSING = ["/missing.css", "/js/missing.js", "/favicon.ico", "/missing", "/sub/missing", "/sub/", "/missing.php"]
#: Files that make an index.php a front controller by themselves.
MARKED = {
    "a document root called public": ("public", []),
    "a document root called web": ("web", []),
    "WordPress": ("site", ["wp-load.php", "wp-blog-header.php", "wp-includes/version.php"]),
    "Drupal": ("site", ["core/lib/Drupal.php"]),
    "a .htaccess": ("site", [".htaccess"]),
}


def application(directory: pathlib.Path, name: str, files: list[str]) -> pathlib.Path:
    root = directory / name
    (root / "sub").mkdir(parents=True)
    for each in files:
        path = root / each
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("RewriteEngine on\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule ^ index.php [L]\n")
    (root / "index.php").write_text(APPLICATION)
    return root


def test_d22_a_classic_application_does_not_answer_for_files_that_are_missing(hayate_command, tmp_path) -> None:
    root = application(tmp_path, "site", [])
    with Hayate(root, workers=1) as server:
        assert get(server, "/").text == "the application: /"
        assert get(server, "/index.php/path").text == "the application: /index.php/path"
        for path in MISSING:
            answer = get(server, path)
            assert answer.status_code == 404 and "Set-Cookie" not in answer.headers, path
        assert server.logged("what is no file: 404 (nothing says that index.php")
    with Hayate(root, workers=1, args=["--front-controller", "index.php"]) as server:
        assert get(server, "/missing.css").text == "the application: /missing.css"
    done = check(root)
    assert "otherwise   404\n" in done.stdout and "--front-controller index.php" in done.stdout


@pytest.mark.parametrize("marked", MARKED)
def test_d22_a_front_controller_gets_every_path_that_is_no_file(hayate_command, tmp_path, marked) -> None:
    root = application(tmp_path, *MARKED[marked])
    with Hayate(root, workers=1) as server:
        for path in ("/blog/2024/hello", "/sitemap.xml", "/api/v1.2/x", "/wp-sitemap.xml", "/missing.css", "/"):
            assert get(server, path).text == f"the application: {path}"
        # As with nginx: a script that is not there is none.
        assert get(server, "/missing.php").status_code == 404
        assert server.logged("what is no file: index.php (")
    done = check(root)
    assert "otherwise   index.php\n" in done.stdout and '--front-controller ""' in done.stdout
    assert check(root, "--front-controller", "").stdout.count("otherwise   404\n") == 1


#: Applications of Debian, as their packages leave them, and what answers an address that is no file. Those that are installed are tried; the
#: suite installs WordPress.
PACKAGED = {
    "/usr/share/wordpress": "index.php",
    "/usr/share/dokuwiki": "404",
    "/usr/share/phpmyadmin": "404",
    "/usr/share/mediawiki": "404",
    "/usr/share/adminer": "404",
}


@pytest.mark.parametrize("root", [root for root in PACKAGED if pathlib.Path(root).is_dir()])
def test_d22_applications_of_debian(hayate_command, root) -> None:
    done = check(root)
    assert done.returncode == 0 and f"otherwise   {PACKAGED[root]}\n" in done.stdout, done.stdout + done.stderr


#: What lies at the top of others' packages (bookworm), with an index.php that is no front controller; and what DokuWiki's .htaccess says, all of
#: whose rules for rewriting are comments.
UNMARKED = {
    "dokuwiki": "README VERSION .htaccess bin/ doku.php feed.php inc/ install.php lib/exe/ vendor/ index.php",
    "phpmyadmin": "autoload.php config.sample.inc.php doc/ favicon.ico js/ libraries/classes/ robots.txt sql/ templates/ themes/ url.php index.php",
    "mediawiki": "api.php autoload.php extensions/ images/ img_auth.php includes/ languages/ load.php mw-config/ rest.php skins/ thumb.php index.php",
    "adminer": "adminer/ adminer.php compile.php coverage.php designs/ editor/ editor.php externals/ lang.php plugins/",
}


@pytest.mark.parametrize("name", UNMARKED)
def test_d22_nothing_says_that_their_index_answers_for_what_is_no_file(tmp_path, name) -> None:
    root = tmp_path / name
    for each in UNMARKED[name].split():
        path = root / each
        (path if each.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not each.endswith("/"):
            path.write_text("<?php require 'inc/init.php';" if each.endswith(".php") else "")
    if (root / ".htaccess").exists():
        (root / ".htaccess").write_text("## no access to fonts\n#RewriteEngine on\n#RewriteRule ^index.php$ doku.php\n#RewriteRule (.*) doku.php?id=$1 [QSA,L]\n")
    done = check(root)
    assert done.returncode == 0 and "otherwise   404\n" in done.stdout, done.stdout + done.stderr


def test_d22_what_is_missing_is_answered_as_by_nginx(hayate_command) -> None:
    """nginx with `try_files $uri $uri/ =404`, as its configuration is for an application without a front controller."""
    directory = temporary_directory("missing")
    root = application(directory, "site", [])
    with NginxFpm(root) as reference, Hayate(root, workers=1) as server:
        for path in MISSING:
            # A directory without an index is 403 there.
            want = 404 if path == "/sub/" else get(reference, path).status_code
            assert get(server, path).status_code == want, path
    shutil.rmtree(directory)


def test_what_the_configuration_denies_answers_nobody(tmp_path) -> None:
    """Neither files nor scripts, nor the front controller in their place; only X-Accel-Redirect leads there, as with nginx's `internal`."""
    root = tmp_path / "site"
    (root / "data/sub").mkdir(parents=True)
    (root / "database").mkdir()
    for path in ("data/a.txt", "data/sub/a.txt", "one.json", "one.json.gz", "one.json.1.xz"):
        (root / path).write_text(SECRET)
    (root / "database/a.txt").write_text("fine")
    (root / "data/run.php").write_text(f"<?php echo '{SECRET}';")
    (root / "index.php").write_text("<?php echo 'index';")
    (root / "accel.php").write_text("<?php header('X-Accel-Redirect: /data/a.txt');")
    (root / "data/.htaccess").write_text("Require all denied\n")
    config = f'[[app]]\nroot = "{root}"\nfront_controller = "index.php"\nsendfile_roots = []\n'
    (tmp_path / "open.toml").write_text(config)
    assert 'deny = ["/data"]' in check("--config", tmp_path / "open.toml").stdout
    (tmp_path / "closed.toml").write_text(config + 'deny = "/data"\n')
    assert "deny" not in check("--config", tmp_path / "closed.toml").stdout
    with Hayate(config=config + 'deny = ["/data", "/one.json"]\n', workers=1) as server:
        for path in ("one.json", "one.json.gz", "one.json.1.xz", "data", "data/", "data/a.txt", "data/sub/a.txt", "data/run.php", "data/run.php/x", "data/nothing",
                     "%64ata/a.txt", "database/../data/a.txt", "//data//a.txt"):
            sent = client.encode("GET", f"/{path}", [("Host", "a"), ("Connection", "close")])
            answer = client.exchange(("127.0.0.1", server.port), sent)
            assert answer.status == 404 and SECRET.encode() not in answer.body, path
        assert get(server, "/database/a.txt").text == "fine" and get(server, "/dat").text == "index"
        assert get(server, "/accel.php").text == SECRET


#: Paths that lead to what is closed by its name: the index of a directory, and the front controller.
CLOSED = ["/x/index.php", "/x/", "/", "/index.php", "/index.php/y", "/nofile", "/no/file"]


@pytest.fixture
def closed_by_name() -> Iterator[pathlib.Path]:
    directory = temporary_directory("closed")
    root = directory / "site"
    for name in ("x", "y"):
        (root / name).mkdir(parents=True)
        (root / name / "index.php").write_text(f"<?php echo '{SECRET}';")
    (root / "index.php").write_text(f"<?php echo '{SECRET}';")
    (root / "x" / "index.html").write_text(SECRET)
    (root / "a.txt").write_text("fine")
    (root / "y/index.php").write_text("<?php echo 'fine';")
    yield root
    shutil.rmtree(directory)


@pytest.mark.reference
def test_nginx_closes_what_an_index_or_a_fallback_leads_to(closed_by_name) -> None:
    closed = "location = /x/index.php { deny all; } location = /index.php { deny all; } location ^~ /index.php/ { deny all; }"
    with NginxFpm(closed_by_name, front_controller="/index.php", extra=closed) as server:
        for path in CLOSED:
            answer = get(server, path)
            assert answer.status_code == 403 and SECRET not in answer.text, path
        assert get(server, "/a.txt").text == get(server, "/y/").text == "fine"


def test_deny_holds_for_what_an_index_or_the_front_controller_answers(hayate_command, closed_by_name) -> None:
    config = f'[[app]]\nroot = "{closed_by_name}"\n'
    denied = 'front_controller = "index.php"\ndeny = ["/x/index.php", "/index.php"]\n'
    rewritten = '[[app.rule]]\nregex = "^/rw/(.*)$"\nrewrite = "/$1"\n'
    with Hayate(config=config + denied + rewritten, workers=1) as server:
        for path in [*CLOSED, "/rw/x/", "/rw/", "/rw/nofile"]:
            for _ in range(2):
                answer = get(server, path)
                assert answer.status_code == 404 and SECRET not in answer.text, path
        assert get(server, "/a.txt").text == get(server, "/y/").text == "fine"
    with Hayate(config=config + 'php = "off"\ndeny = ["/x/index.html"]\n') as server:
        assert get(server, "/x/").status_code == get(server, "/x/index.html").status_code == 404
    assert 'deny: "/index.php" closes the front controller' in check_of(closed_by_name, config + denied)


#: What is closed below an alias: by its name, by that of a directory, as an index, and packed.
BELOW_ALIAS = ["/dl/private", "/dl/private/", "/dl/private/s", "/dl/%70rivate/s", "/dl/one.json", "/dl/one.json.gz", "/dl/x/", "/dl/x/index.html", "/rw/private/s"]


@pytest.fixture
def aliased() -> Iterator[pathlib.Path]:
    directory = temporary_directory("aliased")
    for name in ("site/a.txt", "dl/a.txt", "dl/privately/a.txt"):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text("fine")
    for name in ("private/s", "one.json", "one.json.gz", "x/index.html"):
        (directory / "dl" / name).parent.mkdir(exist_ok=True)
        (directory / "dl" / name).write_text(SECRET)
    yield directory
    shutil.rmtree(directory)


@pytest.mark.reference
def test_nginx_closes_what_is_below_an_alias(aliased) -> None:
    with NginxFpm(aliased / "site", extra=f"location /dl/private {{ deny all; }} location /dl {{ alias {aliased}/dl; }}") as server:
        assert get(server, "/dl/private/s").status_code == 403 and get(server, "/dl/a.txt").text == "fine"


def test_deny_holds_below_an_alias(hayate_command, aliased) -> None:
    config = f'[[app]]\nroot = "{aliased}/site"\nphp = "off"\ndeny = ["/dl/private", "/dl/one.json", "/dl/x/index.html", "/closed"]\n'
    config += '[[app.rule]]\nregex = "^/rw/(.*)$"\nrewrite = "/dl/$1"\n'
    for path in ("/dl", "/closed", "/closed/dl"):
        config += f'[[app.rule]]\npath = "{path}"\nalias = "{aliased}/dl"\n'
    with Hayate(config=config) as server:
        for path in [*BELOW_ALIAS, "/closed/a.txt", "/closed/", "/closed/dl/a.txt"]:
            answer = get(server, path)
            assert answer.status_code == 404 and SECRET not in answer.text, path
        for path in ("/a.txt", "/dl/a.txt", "/rw/a.txt", "/dl/privately/a.txt"):
            assert get(server, path).text == "fine", path


def check_of(directory: pathlib.Path, config: str) -> str:
    file = directory.parent / "checked.toml"
    file.write_text(config)
    return check("--config", file).stdout


def test_check_tells_of_every_htaccess_that_keeps_visitors_out(hayate_command, tmp_path) -> None:
    root = tmp_path / "site"
    whole = {"a": "Order allow,deny", "b": "<RequireAll>\nRequire all denied\n</RequireAll>", "c": '<FilesMatch "^.+$">\nRequire all denied\n</FilesMatch>'}
    part = {"d": "Require valid-user", "e": "RewriteRule !^x$ - [F]", "f": "Require all denied\n<FilesMatch css$>\nRequire all granted\n</FilesMatch>"}
    off = {"g": "php_flag engine off", "h": "RemoveHandler .php"}
    fine = {"i": "Require all granted", "j": "Options -Indexes", "k": "Require all denied\nRequire all granted"}
    for name, text in {**whole, **part, **off, **fine}.items():
        (root / name).mkdir(parents=True)
        (root / name / ".htaccess").write_text(text + "\n")
    (root / "index.php").write_text("<?php")
    config = f'[[app]]\nroot = "{root}"\n'
    said = check_of(root, config)
    assert 'deny = ["/a", "/b", "/c"]' in said
    assert ".htaccess of /d, /e, /f below" in said and "look at it" in said
    assert ".htaccess of /g, /h below" in said and "keeps scripts from running" in said
    # Whoever has written rules for them knows.
    rules = ['path = ["/d", "/e"]\nallow = ["10.0.0.0/8"]\n', 'regex = "^/(f|g|h)/.*\\\\.php$"\ndeny = 403\n', 'glob = "/h/**"\ndeny = 403\n']
    said = check_of(root, config + 'deny = ["/a", "/b", "/c", "/f"]\n' + "".join("[[app.rule]]\n" + rule for rule in rules))
    assert ".htaccess" not in said, said
    # No PHP, no scripts.
    assert "keeps scripts" not in check_of(root, config + 'php = "off"\n')
