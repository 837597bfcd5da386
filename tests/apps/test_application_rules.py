"""The ready-made rules of docs/rules.md: all are well-formed, and do what the page says on the applications themselves, or on trees of their paths."""

from __future__ import annotations

import contextlib
import pathlib
import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from lib.client import Response, encode, exchange
from lib.servers import PHP_VERSION, REPOSITORY, Hayate, hayate_binary

PAGE = (REPOSITORY / "docs/rules.md").read_text()
BLOCKS = dict(re.findall(r"^## (\w+)\n\n```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))


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
    for name in ("evil.php", "index.php", "evil.phtml", "evil.PHP"):
        (uploads / name).write_text("<?php echo 'RAN';")
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
        for closed in ("/evil.php", "/evil.php/x.png", "/", "/index.php", "/evil.phtml", "/evil.PHP", "//evil%2ephp"):
            assert status(below + closed) == 403, closed
        for closed in ("/wp-config.php", "/wp-includes/version.php", "/wp-includes/blocks/archives.php", "/xmlrpc.php", "/wp-admin/includes/file.php"):
            assert status(closed) == 403, closed
        assert status("/readme.html") == 404
        assert status(below + "/a.png") == 200
        assert status("/wp-includes/css/buttons.css") == 200
        # Not installed, it says that it lacks its configuration: but it is WordPress that says so.
        assert "/etc/wordpress" in said("/wp-login.php")
        tries = [status("/wp-login.php", "POST") for _ in range(14)]
        assert tries.count(429) == 3 and tries[-1] == 429, tries


class Site:
    """An application with its rules, as visitors meet it."""

    def __init__(self, hayate: Hayate) -> None:
        self.hayate = hayate

    def ask(self, target: str, method: str = "GET") -> Response:
        request = encode(method, target, [("Host", "a.test"), ("Connection", "close"), ("Content-Length", "0")])
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
def served(name: str, root: pathlib.Path, **more) -> Iterator[Site]:
    ini = "".join(f"\n[app.ini]\n{key} = '{value}'" for key, value in more.items())
    with Hayate(config=f'[[app]]\nroot = "{root}"\n{BLOCKS[name]}{ini}', workers=2) as hayate:
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
    vendor/phpunit/phpunit/src/Util/PHP/eval-stdin.php web.config robots.txt composer.json composer.lock autoload.php translations/drupal.de.po""",
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
            "/sites/default/files/styles/large/public/picture.png": "/index.php",
        }.items():  # fmt: skip
            site.says(target, f"RAN {script} {target}")
        site.are(200, "/core/misc/druplicon.png", "/core/themes/olivero/css/base/base.css", "/core/assets/vendor/jquery/jquery.min.js", "/robots.txt")
        site.are(200, "/sites/default/files/css/a.css", "/sites/default/files/2026-11/picture.png", "/themes/custom/own/images/logo.svg")
        site.are(403, "/sites/default/settings.php", "/sites/default/settings.local.php", "/sites/default/files/evil.php", "/sites/default/private/secret.txt")
        site.are(403, "//sites/default/files/evil.php", "/sites/default/files/evil.php/a.css")
        reached = ("index.php", "update.php", "core/install.php", "core/rebuild.php", "core/authorize.php", "core/modules/statistics/statistics.php")
        open_files = (".png", ".css", ".js", ".svg", "robots.txt")
        closed = [name for name in DRUPAL[1].split() if not name.endswith(open_files) and not name.startswith("sites/default/s") and name not in reached]
        for name in closed:
            answer = site.ask("/" + name)
            assert answer.status in (403, 404) or name == "autoload.php" and answer.body == b"a file", (name, answer.status, answer.body)


NEXTCLOUD = (
    """index.php remote.php public.php cron.php status.php ocs/v1.php ocs/v2.php ocs-provider/index.php core/ajax/update.php updater/index.php
    apps/richdocumentscode/proxy.php""",
    """core/templates/layout.user.php core/Controller/LoginController.php core/register_command.php apps/files/appinfo/info.xml
    apps/files/lib/AppInfo/Application.php apps/files/js/files.mjs apps/theming/css/default.css apps/files/img/app.svg core/img/logo/logo.png
    dist/core-common.js config/config.php config/CAN_INSTALL data/.ocdata data/admin/files/letter.txt data/nextcloud.log data/owncloud.db lib/base.php
    lib/versioncheck.php 3rdparty/autoload.php resources/config/mimetypemapping.dist.json occ console.php themes/example/defaults.php build/psalm.php
    tests/bootstrap.php autotest.sh db_structure.xml issue_template.md templates/x.php robots.txt version.php""",
)


def test_rules_of_nextcloud(hayate_command, tmp_path: pathlib.Path) -> None:
    """Debian has no package of it: the paths are those of Nextcloud 30."""
    tmp_path.chmod(0o755)
    root = tmp_path / "site"
    tree(root, *NEXTCLOUD)
    rules = BLOCKS["Nextcloud"]
    with Hayate(config=f'[[app]]\nroot = "{root}"\nfront_controller = "index.php"\n{rules}', workers=2) as hayate:
        site = Site(hayate)
        for target, script in {
            "/": "/index.php", "/apps/files/": "/index.php", "/index.php/apps/files/files": "/index.php", "/s/abc123": "/index.php", "/login": "/index.php",
            "/remote.php/dav/files/admin/a.txt": "/remote.php", "/public.php/webdav": "/public.php", "/status.php": "/status.php", "/cron.php": "/cron.php",
            "/ocs/v2.php/cloud/user": "/ocs/v2.php", "/ocs/v1.php/config": "/ocs/v1.php", "/core/ajax/update.php": "/core/ajax/update.php",
            "/updater/": "/updater/index.php", "/apps/richdocumentscode/proxy.php?req=/x": "/apps/richdocumentscode/proxy.php",
            "/ocs-provider/": "/ocs-provider/index.php", "/apps/theming/nothing.css": "/index.php",
        }.items():  # fmt: skip
            site.says(target, f"RAN {script} {target}")
        site.are(200, "/apps/files/js/files.mjs", "/core/img/logo/logo.png", "/dist/core-common.js", "/apps/theming/css/default.css", "/robots.txt")
        site.are(404, "/config/config.php", "/config/", "/data/admin/files/letter.txt", "/data/nextcloud.log", "/data/owncloud.db", "/lib/base.php", "/lib")
        site.are(404, "/3rdparty/autoload.php", "/build/psalm.php", "/tests/bootstrap.php", "/occ", "/console.php", "/autotest.sh", "/db_structure.xml")
        site.are(404, "/issue_template.md", "/templates/x.php", "//config/config.php", "/data/.ocdata", "/data")
        site.are(404, "/core/templates/layout.user.php", "/core/register_command.php", "/apps/files/lib/AppInfo/Application.php", "/themes/example/defaults.php")
        for service in ("carddav", "caldav"):
            answer = site.ask(f"/.well-known/{service}")
            assert (answer.status, dict(answer.headers)["Location"]) == (301, "/remote.php/dav/")
        answer = site.ask("/.well-known/webfinger?resource=x")
        assert (answer.status, dict(answer.headers)["Location"]) == (301, "/index.php/.well-known/webfinger?resource=x")
        assert dict(site.ask("/").headers)["X-Robots-Tag"] == "noindex, nofollow"
        assert dict(site.ask("/dist/core-common.js").headers)["Cache-Control"] == "public, max-age=15778463"
