"""The ready-made rules of docs/rules.md: all are well-formed, and do what the page says on the applications themselves, or on trees of their paths."""

from __future__ import annotations

import contextlib
import json
import pathlib
import re
import shutil
import subprocess
import urllib.parse
from collections.abc import Iterator

import pytest

from lib.client import Response, encode, exchange
from lib.servers import PHP_VERSION, REPOSITORY, Hayate, hayate_binary

PAGE = (REPOSITORY / "docs/rules.md").read_text()
BLOCKS = dict(re.findall(r"^## (\w+)\n\n```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
#: What PHP may be called, for one server or another; Hayate runs `.php` alone, and sends none of them.
PHP_NAMES = ("php", "PHP", "php5", "PHP7", "pht", "phtml", "phar")


def ways(*paths: str) -> list[str]:
    """Other ways to write paths that name the same: another slash, characters written by their numbers, and behind a script what it gets as PATH_INFO."""
    found = []
    for path in paths:
        written = urllib.parse.quote(path)
        found += [written, "/" + written, f"{urllib.parse.quote(path[:-1])}%{ord(path[-1]):02x}", written.replace(".", "%2E")]
        found += [written + "/", written + "/x.css", written + "/x.php"] if path.endswith(".php") else []
    return found


def test_the_front_controller_of_the_page_finds_each_path(hayate_command, tmp_path: pathlib.Path) -> None:
    """Those that parse_url() takes for malformed, or for a host, too."""
    tmp_path.chmod(0o755)
    (source,) = re.findall(r"^```php\n(<\?php // front\.php\n.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "front.php").write_text(source)
    (tmp_path / "index.php").write_text("<?php echo json_encode([$_GET, $_SERVER['QUERY_STRING'], $_SERVER['SCRIPT_NAME']]);")
    with Hayate(tmp_path, args=["--front-controller", "front.php"]) as hayate:
        site = Site(hayate)
        for target, url in {
            "/page": "page", "/item:12": "item:12", "/a:80": "a:80", "/ns:5": "ns:5", "/ns:65536/x": "ns:65536/x", "/a%20b/%C3%A4": "a b/ä",
            "//host/x": "host/x", "///x": "x", "//a:b": "a:b", "/a?b?c": "a", "/a:1?x=/b:2": "a:1", "http://a.test/item:12": "item:12",
        }.items():  # fmt: skip
            answer = site.ask(target)
            assert answer.status == 200, (target, answer.status)
            given, query, script = json.loads(answer.body)
            assert (given["url"], script) == (url, "/index.php"), target
            assert dict(urllib.parse.parse_qsl(query, keep_blank_values=True)) == given, target


def test_there_are_rules_for_those_that_need_them() -> None:
    assert set(BLOCKS) == {"WordPress", "MediaWiki", "DokuWiki", "phpMyAdmin", "Drupal", "Nextcloud"}


@pytest.mark.parametrize("name", BLOCKS)
def test_ready_made_rules_are_well_formed(hayate_command, tmp_path: pathlib.Path, name: str) -> None:
    (tmp_path / "site").mkdir()
    config = tmp_path / "hayate.toml"
    config.write_text(f'[[app]]\nroot = "site"\nphp = "{PHP_VERSION}"\n{BLOCKS[name]}')
    done = subprocess.run([hayate_binary(), "check", "--config", config], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


WORDPRESS = pathlib.Path("/usr/share/wordpress")


@pytest.mark.skipif(not WORDPRESS.exists(), reason="the package wordpress is not installed")
def test_rules_of_wordpress(hayate_command, tmp_path: pathlib.Path) -> None:
    tmp_path.chmod(0o755)
    # The package's links into /etc and to libraries of others are not needed for this.
    root = tmp_path / "site"
    shutil.copytree(WORDPRESS, root, ignore_dangling_symlinks=True)
    uploads = root / "wp-content/uploads/2026"
    uploads.mkdir(parents=True, exist_ok=True)
    elsewhere = [root / "wp-content" / place for place in ("blogs.dir/2/files", "upgrade", "upgrade-temp-backup/plugins", "plugins/own/uploads")]
    for place in (uploads, *elsewhere, root / "files"):
        place.mkdir(parents=True, exist_ok=True)
        for name in ("index.php", *(f"evil.{php}" for php in PHP_NAMES)):
            (place / name).write_text("<?php echo 'RAN';")
    for name in ("wp-content/plugins/own/readme.txt", "wp-content/debug.log", "wp-content/own.log"):
        (root / name).write_text("not for visitors")
    (uploads / "a.png").write_text("a picture")
    # An hour in place of a minute, so that the count does not depend on how busy the machine is.
    rules = BLOCKS["WordPress"].replace('per = "1m"', 'per = "1h"')
    assert rules != BLOCKS["WordPress"]
    config = f'[[app]]\nroot = "{root}"\nfront_controller = "index.php"\n{rules}'
    with Hayate(config=config, workers=2) as hayate:

        def ask(target: str, method: str = "GET") -> Response:
            request = encode(method, target, [("Host", "a.test"), ("Connection", "close"), ("Content-Length", "0")])
            answer = exchange(("127.0.0.1", hayate.port), request, timeout=60)
            assert answer is not None and b"RAN" not in answer.body, target
            return answer

        def status(target: str, method: str = "GET") -> int:
            return ask(target, method).status

        def said(target: str) -> str:
            return ask(target).body.decode()

        below = "/wp-content/uploads/2026"
        for place in (below, "/files", "/wp-content/blogs.dir/2/files", *("/" + str(place.relative_to(root)) for place in elsewhere)):
            for closed in (f"{place}/", *ways(f"{place}/index.php", *(f"{place}/evil.{php}" for php in PHP_NAMES))):
                assert status(closed) == 403, closed
        for closed in ways(
            "/wp-config.php", "/wp-config-sample.php", "/wp-settings.php", "/wp-includes/version.php", "/wp-includes/blocks/archives.php", "/xmlrpc.php",
            "/wp-admin/includes/file.php", "/wp-content/debug.log", "/wp-content/own.log",
        ):  # fmt: skip
            assert status(closed) == 403, closed
        for closed in ways("/readme.html", "/wp-content/plugins/own/readme.txt"):
            assert status(closed) == 404, closed
        assert status(below + "/a.png") == 200
        assert status("/wp-includes/css/buttons.css") == 200
        # Not installed, it says that it lacks its configuration: but it is WordPress that says so.
        assert "/etc/wordpress" in said("/wp-login.php")
        tries = [status("/wp-login.php", "POST") for _ in range(14)]
        assert tries.count(429) == 3 and tries[-1] == 429, tries


#: What a network has besides, behind those.
(NETWORK,) = re.findall(r"^### A network of sites\n.*?^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(not WORDPRESS.exists(), reason="the package wordpress is not installed")
def test_rules_of_a_network_of_wordpress(hayate_command, tmp_path: pathlib.Path) -> None:
    """With sites in directories: each has the scripts and files of all, and is closed where they are."""
    tmp_path.chmod(0o755)
    root = tmp_path / "site"
    shutil.copytree(WORDPRESS, root, ignore_dangling_symlinks=True)
    uploads = root / "wp-content/uploads/sites/2"
    uploads.mkdir(parents=True)
    (uploads / "evil.php").write_text("<?php echo 'RAN';")
    (uploads / "a.png").write_text("a picture")
    with Hayate(config=f'[[app]]\nroot = "{root}"\nfront_controller = "index.php"\n{BLOCKS["WordPress"]}{NETWORK}', workers=2) as hayate:
        site = Site(hayate)
        for prefix in ("", "/shop", "/sub-site_2"):
            # Not installed, it says that it lacks its configuration: but it is WordPress that says so. So it does of the pages.
            for page in ("/wp-login.php", "/wp-admin/", "/wp-admin/edit.php", "/files/", "/my/files/report/", "/uploads/x/"):
                assert "/etc/wordpress" in site.ask(prefix + page).body.decode(), prefix + page
            admin = site.ask(prefix + "/wp-admin")
            assert (admin.status, dict(admin.headers)["Location"]) == (301, prefix + "/wp-admin/")
            for name, kind in (("/wp-includes/css/buttons.css", "text/css"), ("/wp-content/uploads/sites/2/a.png", "image/png")):
                answer = site.ask(prefix + name)
                headers = dict(answer.headers)
                assert (answer.status, headers["Content-Type"], headers["Cache-Control"]) == (200, kind, "public, max-age=2592000"), prefix + name
            closed = ("/xmlrpc.php", "/wp-config.php", "/wp-settings.php", "/wp-includes/version.php", "/wp-content/uploads/sites/2/evil.php")
            site.are(403, *ways(*(prefix + path for path in closed)))
        tries = {site.ask(f"{prefix}/wp-login.php", "POST").status for prefix in ("", "/shop", "/a", "//b", "/index.php") for _ in range(4)}
        assert 429 in tries


class Site:
    """An application with its rules, as visitors meet it."""

    def __init__(self, hayate: Hayate) -> None:
        self.hayate = hayate

    def ask(self, target: str, method: str = "GET", **headers: str) -> Response:
        more = [(name.replace("_", "-"), value) for name, value in headers.items()]
        request = encode(method, target, [("Host", "a.test"), ("Connection", "close"), ("Content-Length", "0"), *more])
        answer = exchange(("127.0.0.1", self.hayate.port), request, timeout=120)
        assert answer is not None, target
        return answer

    def are(self, status: int, *targets: str) -> None:
        found = {target: self.ask(target).status for target in targets}
        assert set(found.values()) == {status}, {target: got for target, got in found.items() if got != status}

    def says(self, target: str, words: str, status: int = 200) -> None:
        answer = self.ask(target)
        assert (answer.status, words in answer.body.decode(errors="replace")) == (status, True), (target, answer.status, answer.body[:500])


@contextlib.contextmanager
def served(name: str, root: pathlib.Path, changed: dict[str, str] | None = None, **more) -> Iterator[Site]:
    """With some words of the rules changed."""
    rules = BLOCKS[name]
    for old, new in (changed or {}).items():
        assert rules.count(old) == 1, old
        rules = rules.replace(old, new)
    ini = "".join(f"\n[app.ini]\n{key} = '{value}'" for key, value in more.items())
    with Hayate(config=f'[[app]]\nroot = "{root}"\n{rules}{ini}', workers=2) as hayate:
        yield Site(hayate)


def tree(root: pathlib.Path, scripts: str, files: str) -> None:
    """Scripts that say that they ran, and files; in words, a path each."""
    for name in [*scripts.split(), *files.split()]:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("<?php echo 'RAN ', $_SERVER['SCRIPT_NAME'], ' ', $_SERVER['REQUEST_URI'];" if name in scripts.split() else "a file")


DRUPAL = (
    "index.php update.php core/install.php core/rebuild.php core/authorize.php core/modules/statistics/statistics.php",
    """core/lib/Drupal.php core/tests/bootstrap.php core/modules/system/tests/http.php core/scripts/password-hash.sh core/includes/bootstrap.inc
    core/modules/node/node.module core/modules/node/node.info.yml core/modules/node/node.install core/profiles/standard/standard.profile
    core/themes/olivero/olivero.theme core/themes/olivero/templates/node.html.twig core/themes/engines/twig/twig.engine core/package.json core/yarn.lock
    core/CHANGELOG.txt core/composer.json core/misc/druplicon.png core/themes/olivero/css/base/base.css core/assets/vendor/jquery/jquery.min.js
    sites/default/settings.php sites/default/settings.local.php sites/default/services.yml sites/default/files/evil.php sites/default/files/css/a.css
    sites/default/files/2026-11/picture.png sites/default/private/secret.txt modules/contrib/token/token.tokens.inc modules/contrib/token/src/Token.php
    themes/custom/own/own.theme themes/custom/own/images/logo.svg profiles/own/own.php vendor/autoload.php vendor/composer/installed.json
    vendor/phpunit/phpunit/src/Util/PHP/eval-stdin.php web.config robots.txt composer.json composer.lock autoload.php translations/drupal.de.po
    INSTALL.txt README.md LICENSE.txt core/INSTALL.txt core/INSTALL.mysql.txt core/USAGE.txt core/modules/help/tests/fixture.txt sites/README.txt
    modules/README.txt modules/contrib/token/README.md libraries/own/demo.php libraries/own/README.txt recipes/own/run.php sites/all/modules/own/help.txt
    site.mysql backup.pgsql site.mysql.gz sites/default/files/debug.log drupal.log sites/default/files/private/secret.pdf sites/default/files/sub/private/x.pdf
    sites/a.test/private/x.txt sites/default/files/sub/evil.php5 sites/default/files/evil.phtml sites/default/files/evil.phar
    sites/default/files/config/sync/system.site.yml sites/default/files/notes.txt sites/default/files/private.pdf ads.txt""",
)
#: What the .htaccess of Drupal 11 closes by its name (FilesMatch), anywhere.
DRUPAL_NAMES = (
    *(
        f"a.{extension}{copy}"
        for extension in "engine inc install make module profile po sh sql mysql pgsql theme twig tpl tpl.php xtmpl yml".split()
        for copy in ("", "~", ".swp", ".swo", ".bak", ".orig", ".save")
    ),
    *(f"a.php{copy}" for copy in ("~", ".swp", ".swo", ".bak", ".orig", ".save")),
    *"Entries Entries.Log Repository Root Tag Template composer.json composer.lock web.config yarn.lock package.json package-lock.json #a.php# ##".split(),
)


def test_rules_of_drupal(hayate_command, tmp_path: pathlib.Path) -> None:
    """Debian has no package of it: the paths are those of Drupal 10."""
    tmp_path.chmod(0o755)
    root = tmp_path / "site"
    tree(root, *DRUPAL)
    with served("Drupal", root) as site:
        for target, script in {
            "/": "/index.php", "/node/1": "/index.php", "/admin/config.html": "/index.php", "/index.php/node/1": "/index.php",
            "/update.php/selection": "/update.php", "/core/install.php?langcode=de": "/core/install.php", "/core/rebuild.php": "/core/rebuild.php",
            "/core/authorize.php?batch=1": "/core/authorize.php", "/core/modules/statistics/statistics.php": "/core/modules/statistics/statistics.php",
            "/sites/default/files/styles/large/public/picture.png": "/index.php", "/node/private": "/index.php", "/readme": "/index.php",
            "/system/files/report.sql": "/index.php", "/de/system/files/2026/README.txt": "/index.php", "/pt-br/system/files/a.log": "/index.php",
        }.items():  # fmt: skip
            site.says(target, f"RAN {script} {target}")
        site.are(200, "/core/misc/druplicon.png", "/core/themes/olivero/css/base/base.css", "/core/assets/vendor/jquery/jquery.min.js", "/robots.txt")
        site.are(200, "/sites/default/files/css/a.css", "/sites/default/files/2026-11/picture.png", "/themes/custom/own/images/logo.svg")
        site.are(200, "/sites/default/files/notes.txt", "/sites/default/files/private.pdf", "/ads.txt")
        headers = dict(site.ask("/core/misc/druplicon.png").headers)
        assert (headers["X-Content-Type-Options"], headers["Cache-Control"]) == ("nosniff", "public, max-age=31536000")
        assert "Cache-Control" not in dict(site.ask("/system/files/photo.jpg").headers)
        site.are(403, *ways("/sites/default/settings.php", "/sites/default/settings.local.php", "/sites/default/files/evil.php"))
        site.are(403, *ways("/sites/default/private/secret.txt", "/sites/default/files/private/secret.pdf", "/sites/default/files/sub/private/x.pdf"))
        site.are(403, "/sites/a.test/private/x.txt", "/sites/default/files/private/", "/sites/default/files/private", "/sites/default/files/sub/evil.php5")
        open_files = (".png", ".css", ".js", ".svg", "robots.txt", "ads.txt", "notes.txt", "files/private.pdf")
        for way in ways(*("/" + name for name in DRUPAL[1].split() if not name.endswith(open_files))):
            answer = site.ask(way)
            assert answer.status in (403, 404), (way, answer.status, answer.body)


def test_names_that_drupal_closes_are_closed_by_the_rules_alone(hayate_command, tmp_path: pathlib.Path) -> None:
    """Whatever `hidden_files` says: Drupal's .htaccess is the list."""
    tmp_path.chmod(0o755)
    root = tmp_path / "site"
    tree(root, "index.php", " ".join(f"{place}{name}" for name in DRUPAL_NAMES for place in ("", "modules/own/")))
    tree(root, "", "modules/own/a.css modules/own/a.phpx modules/own/Tags modules/own/sqlite.js")
    with Hayate(config=f'[[app]]\nroot = "{root}"\nfront_controller = "index.php"\nhidden_files = []\n{BLOCKS["Drupal"]}', workers=2) as hayate:
        site = Site(hayate)
        site.are(200, "/", "/modules/own/a.css", "/modules/own/Tags", "/modules/own/sqlite.js")
        site.are(404, *ways(*(f"/{place}{name}" for name in DRUPAL_NAMES for place in ("", "modules/own/"))))
        site.are(404, "/modules/own/a.MODULE", "/modules/own/a.Yml.bak")


NEXTCLOUD = (
    """index.php remote.php public.php cron.php status.php ocs/v1.php ocs/v2.php ocs-provider/index.php core/ajax/update.php updater/index.php
    apps/richdocumentscode/proxy.php apps/richdocumentscode_arm64/proxy.php""",
    """core/templates/layout.user.php core/Controller/LoginController.php core/register_command.php apps/files/appinfo/info.xml
    apps/files/lib/AppInfo/Application.php apps/files/js/files.mjs apps/theming/css/default.css apps/files/img/app.svg core/img/logo/logo.png
    dist/core-common.js config/config.php config/CAN_INSTALL data/.ocdata data/admin/files/letter.txt data/nextcloud.log data/owncloud.db lib/base.php
    lib/versioncheck.php 3rdparty/autoload.php resources/config/mimetypemapping.dist.json occ console.php themes/example/defaults.php build/psalm.php
    tests/bootstrap.php autotest.sh db_structure.xml issue_template.md templates/x.php robots.txt version.php
    composer.json composer.lock package.json package-lock.json core/shipped.json core/fonts/a.woff core/fonts/a.woff2 core/fonts/a.otf core/img/a.webp
    core/img/a.mp4 core/img/a.gif core/img/a.ico core/img/a.jpg apps/text/js/a.map apps/text/js/a.wasm apps/recognize/a.tflite apps/spreed/a.ogg
    apps/spreed/a.flac apps/files/js/a.mjs apps/evil/x.php resources/x.php dist/x.php custom_apps/own/lib/x.php""",
)


def test_rules_of_nextcloud(hayate_command, tmp_path: pathlib.Path) -> None:
    """Debian has no package of it: the paths are those of Nextcloud 30."""
    tmp_path.chmod(0o755)
    root = tmp_path / "site"
    tree(root, *NEXTCLOUD)
    rules = BLOCKS["Nextcloud"]
    written = re.search(r"^In its `\[\[app\]\]` write `(.*?)` and `(.*?)`", PAGE.split("## Nextcloud")[1], re.MULTILINE)
    assert written
    with Hayate(config=f'[[app]]\nroot = "{root}"\n{written[1]}\n{written[2]}\n{rules}', workers=2) as hayate:
        site = Site(hayate)
        for target, script in {
            "/": "/index.php", "/apps/files/": "/index.php", "/index.php/apps/files/files": "/index.php", "/s/abc123": "/index.php", "/login": "/index.php",
            "/remote.php/dav/files/admin/a.txt": "/remote.php", "/public.php/webdav": "/public.php", "/status.php": "/status.php", "/cron.php": "/cron.php",
            "/ocs/v2.php/cloud/user": "/ocs/v2.php", "/ocs/v1.php/config": "/ocs/v1.php", "/core/ajax/update.php": "/core/ajax/update.php",
            "/updater/": "/updater/index.php", "/apps/richdocumentscode/proxy.php?req=/x": "/apps/richdocumentscode/proxy.php",
            "/ocs-provider/": "/ocs-provider/index.php", "/apps/theming/nothing.css": "/index.php", "/remotely": "/index.php", "/ocm-provider/": "/index.php",
            "/apps/richdocumentscode_arm64/proxy.php?status": "/apps/richdocumentscode_arm64/proxy.php", "//remote.php/webdav/": "/remote.php",
            "/remote.php/dav/files/admin/core/x.php": "/remote.php", "/remote.php/dav/files/admin/lib/y.php/z.php": "/remote.php",
        }.items():  # fmt: skip
            site.says(target, f"RAN {script} {target}")
        site.are(200, "/apps/files/js/files.mjs", "/core/img/logo/logo.png", "/dist/core-common.js", "/apps/theming/css/default.css", "/robots.txt")
        site.are(404, "/config/config.php", "/config/", "/data/admin/files/letter.txt", "/data/nextcloud.log", "/data/owncloud.db", "/lib/base.php", "/lib")
        site.are(404, "/3rdparty/autoload.php", "/build/psalm.php", "/tests/bootstrap.php", "/occ", "/console.php", "/autotest.sh", "/db_structure.xml")
        site.are(404, "/issue_template.md", "/templates/x.php", "//config/config.php", "/data/.ocdata", "/data")
        site.are(404, "/core/templates/layout.user.php", "/core/register_command.php", "/apps/files/lib/AppInfo/Application.php", "/themes/example/defaults.php")
        site.are(404, *ways("/composer.json", "/composer.lock", "/package.json", "/package-lock.json", "/core/shipped.json", "/version.php"))
        site.are(404, *ways("/apps/evil/x.php", "/resources/x.php", "/dist/x.php", "/custom_apps/own/lib/x.php"))
        for target, location in {"/remote": "/remote.php/remote", "/remote/webdav/a%20b?x=1": "/remote.php/remote/webdav/a%20b?x=1"}.items():
            answer = site.ask(target)
            assert (answer.status, dict(answer.headers)["Location"]) == (301, location)
        for method in ("GET", "OPTIONS", "PROPFIND"):
            answer = site.ask("/", method, User_Agent="DavClnt")
            assert (answer.status, dict(answer.headers)["Location"]) == (302, "/remote.php/webdav/")
        assert site.ask("/", User_Agent="Mozilla/5.0 DavClnt").status == site.ask("/login", User_Agent="DavClnt").status == 200
        for service in ("carddav", "caldav"):
            answer = site.ask(f"/.well-known/{service}")
            assert (answer.status, dict(answer.headers)["Location"]) == (301, "/remote.php/dav/")
        answer = site.ask("/.well-known/webfinger?resource=x")
        assert (answer.status, dict(answer.headers)["Location"]) == (301, "/index.php/.well-known/webfinger?resource=x")
        for target in ("/", "/dist/core-common.js", "/config/config.php", "/remote/x", "/status.php"):
            headers = dict(site.ask(target).headers)
            assert (headers["X-Robots-Tag"], headers["X-Permitted-Cross-Domain-Policies"]) == ("noindex, nofollow", "none"), target
            assert (headers["Referrer-Policy"], "X-Powered-By" in headers) == ("no-referrer", False), target
        for name in "core/img/a.webp core/img/a.mp4 core/img/a.gif core/img/a.ico core/img/a.jpg apps/text/js/a.map apps/text/js/a.wasm".split():
            assert dict(site.ask("/" + name).headers)["Cache-Control"] == "public, max-age=15778463", name
        for name in "apps/recognize/a.tflite apps/spreed/a.ogg apps/spreed/a.flac apps/files/js/a.mjs dist/core-common.js core/img/logo/logo.png".split():
            assert dict(site.ask("/" + name).headers)["Cache-Control"] == "public, max-age=15778463", name
        for name in "core/fonts/a.woff core/fonts/a.woff2 core/fonts/a.otf".split():
            assert dict(site.ask("/" + name).headers)["Cache-Control"] == "public, max-age=604800", name
        # What scripts send by such a name is what somebody has uploaded, for those alone who may see it.
        for target in ("/remote.php/dav/files/admin/photo.jpg", "/public.php/dav/files/token/a.png", "/s/token/download/a.css", "/index.php/s/token/a.mp4"):
            assert "Cache-Control" not in dict(site.ask(target).headers), target
