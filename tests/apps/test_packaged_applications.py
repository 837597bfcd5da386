"""The ready-made rules of docs/rules.md on Debian 12's packages of the applications, which scripts/applications unpacks."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

import pytest

from lib.servers import PHP_VERSION, REPOSITORY

from .test_application_rules import served

UNPACKED = REPOSITORY / "target/applications"
pytestmark = pytest.mark.skipif(not (UNPACKED / "complete").exists(), reason="scripts/applications has not been run (scripts/setup --test)")
PICTURE = b"\x89PNG\r\n\x1a\n"


def of_this_machine(directory: str, names: list[str]) -> set[str]:
    """Links to settings and data of the machine: they lead nowhere, or to those of the package that is installed beside the unpacked one."""
    links = (entry for entry in map(pathlib.Path(directory).joinpath, names) if entry.is_symlink())
    return {link.name for link in links if str(link.readlink()).startswith(("/etc/", "/var/"))}


def test_rules_of_mediawiki(hayate_command, tmp_path: pathlib.Path) -> None:
    tmp_path.chmod(0o755)
    root = tmp_path / "site"
    shutil.copytree(UNPACKED / "mediawiki/usr/share/mediawiki", root, ignore=of_this_machine, ignore_dangling_symlinks=True)
    for name in ("images/a/ab", "images/deleted", "cache", "extensions"):
        (root / name).mkdir(parents=True)
    (root / "images/a/ab/A.png").write_bytes(PICTURE)
    for name in ("images/evil.php", "images/evil.PHP5", "images/evil.html", "images/deleted/B.png", "cache/l10n"):
        (root / name).write_text("<?php echo 'RAN';")
    database = tmp_path / "database"
    database.mkdir()
    install = [f"php{PHP_VERSION}", "maintenance/install.php", "--dbtype=sqlite", f"--dbpath={database}", "--dbname=wiki", "--server=http://a.test"]
    done = subprocess.run(
        [*install, "--scriptpath=", "--pass=long-enough-1", "The Wiki", "Admin"], cwd=root, capture_output=True, text=True, timeout=600
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    with (root / "LocalSettings.php").open("a") as settings:
        settings.write('\n$wgArticlePath = "/wiki/$1";\n')
    with served("MediaWiki", root) as site:
        for target in ("/wiki/Main_Page", "/index.php?title=Main_Page"):
            site.says(target, "MediaWiki has been installed")
        for target in ("/", "/wiki/Main%20Page"):
            assert dict(site.ask(target).headers)["Location"] == "http://a.test/wiki/Main_Page"
        site.says("/wiki/A%26B", "<title>A&amp;B - The Wiki</title>", 404)
        site.says("/wiki/Special:Version?useskin=fallback", "Version - The Wiki")
        site.says("/api.php?action=query&meta=siteinfo&format=json", '"sitename":"The Wiki"')
        site.says("/load.php?modules=startup&only=scripts&raw=1", "isCompatible")
        site.says("/rest.php/v1/page/Main_Page", '"title":"Main Page"')
        site.are(200, "/resources/assets/wiki.png", "/images/a/ab/A.png")
        assert "sandbox" in dict(site.ask("/images/a/ab/A.png").headers)["Content-Security-Policy"]
        site.are(403, "/includes/DefaultSettings.php", "/languages/Language.php", "/maintenance/install.php", "/vendor/autoload.php", "/mw-config/index.php")
        site.are(403, "/mw-config/", "/cache/l10n", "/images/deleted/B.png", "//includes/WebStart.php", "/vendor/composer/installed.json")
        site.are(403, "/images/evil.php", "/images/evil.PHP5", "/images/evil.html", "/images/evil.php/a.png", "/images/%65vil.php")
        site.are(404, "/composer.json", "/nothing")
        assert site.ask("/LocalSettings.php").body == b""


def test_rules_of_dokuwiki(hayate_command, tmp_path: pathlib.Path) -> None:
    tmp_path.chmod(0o755)
    root, package = tmp_path / "site", UNPACKED / "dokuwiki"
    # Debian spreads it over the system; this is how its makers lay it out.
    shutil.copytree(package / "usr/share/dokuwiki", root, ignore=shutil.ignore_patterns("plugins", "tpl", ".htaccess*", "preload.php"))
    for folder in ("plugins", "tpl"):
        shutil.copytree(package / "var/lib/dokuwiki/lib" / folder, root / "lib" / folder)
    shutil.copytree(package / "var/lib/dokuwiki/data", root / "data")
    shutil.copytree(package / "etc/dokuwiki", root / "conf", ignore=shutil.ignore_patterns("*.auth.php"))
    for file in [*(root / "inc").rglob("*.php"), *(root / "vendor/composer").glob("*.php")]:
        text = file.read_text(errors="surrogateescape")
        if "/usr/share/php" in text:
            file.write_text(text.replace("/usr/share/php", f"{UNPACKED}/libraries/usr/share/php"), errors="surrogateescape")
    (root / "conf/local.php").write_text("<?php $conf['savedir'] = './data'; $conf['userewrite'] = 1; $conf['useacl'] = 0; $conf['license'] = '';")
    for name, text in {"pages/ns/page.txt": "====== Hello there ======", "pages/start.txt": "====== Beginning ======"}.items():
        (root / "data" / name).parent.mkdir(exist_ok=True)
        (root / "data" / name).write_text(text)
    (root / "data/media/ns").mkdir()
    (root / "data/media/ns/w.png").write_bytes((UNPACKED / "mediawiki/usr/share/mediawiki/resources/assets/wiki.png").read_bytes())
    (root / "README").write_text("a file of its makers")
    with served("DokuWiki", root) as site:
        assert dict(site.ask("/").headers)["Location"] == "/start"
        site.says("/start", "Beginning</h1>")
        site.says("/ns:page", "Hello there</h1>")
        site.says("/doku.php?id=ns:page", "Hello there</h1>")
        site.says("/ns:page?do=edit", "====== Hello there ======")
        site.says("/_export/raw/ns:page", "====== Hello there ======")
        site.says("/_detail/ns:w.png", "w.png")
        assert site.ask("/_media/ns:w.png").body.startswith(PICTURE)
        site.says("/feed.php", "<title>")
        site.are(200, "/lib/exe/css.php", "/lib/exe/js.php", "/lib/tpl/dokuwiki/images/logo.png", "/lib/exe/opensearch.php")
        site.are(403, "/data/pages/start.txt", "/data/", "/conf/local.php", "/conf/dokuwiki.php", "/inc/init.php", "/bin/wantedpages.php", "/vendor/autoload.php")
        site.are(403, "//data/pages/start.txt", "/vendor/composer/installed.json")
        site.are(404, "/README", "/VERSION", "/lib/plugins/authpdo/_test/test.sqlite3")
        # No page of a namespace is a file: the application says that there is none.
        site.says("/nowhere:at_all", "This topic does not exist yet")


def test_rules_of_phpmyadmin(hayate_command, tmp_path: pathlib.Path) -> None:
    tmp_path.chmod(0o755)
    root, package = tmp_path / "site", UNPACKED / "phpmyadmin"
    shutil.copytree(package / "usr/share/phpmyadmin", root, ignore=shutil.ignore_patterns("locale", "html"), ignore_dangling_symlinks=True)
    (root / "doc/html/_sources").mkdir(parents=True)
    (root / "doc/html/_sources/index.rst.txt").write_text("source")
    (root / "doc/html/index.html").write_text("documentation")
    (root / "setup").mkdir()
    (root / "setup/index.php").write_text("<?php echo 'RAN';")
    (tmp_path / "tmp").mkdir()
    settings = tmp_path / "config.inc.php"
    settings.write_text("<?php $cfg['blowfish_secret'] = str_repeat('x', 32); $cfg['Servers'][1]['auth_type'] = 'cookie';")
    settings.chmod(0o644)
    paths = root / "libraries/vendor_config.php"
    paths.write_text(paths.read_text().replace("/var/lib/phpmyadmin/tmp/", f"{tmp_path}/tmp/").replace("/etc/phpmyadmin/config.inc.php", str(settings)))
    # Libraries find each other by where they lie, so those that the system has stand beside the others.
    libraries = tmp_path / "libraries"
    shutil.copytree(UNPACKED / "libraries/usr/share/php", libraries)
    for place in ("Symfony", "Symfony/Component"):
        for there in (pathlib.Path("/usr/share/php") / place).iterdir():
            if not (libraries / place / there.name).exists():
                (libraries / place / there.name).symlink_to(there)
    with served("phpMyAdmin", root, include_path=f".:{libraries}:/usr/share/php") as site:
        for target in ("/", "/index.php", "/index.php?route=/import"):
            site.says(target, 'name="pma_username"')
        assert dict(site.ask("/").headers)["X-Robots-Tag"].startswith("noindex, nofollow")
        site.says("/js/messages.php?l=en", "Messages")
        site.are(200, "/js/dist/functions.js", "/themes/pmahomme/css/theme.css", "/favicon.ico", "/doc/html/index.html")
        site.are(403, "/libraries/constants.php", "/templates/header.twig", "/sql/create_tables.sql", "/setup/", "/setup/index.php", "/vendor/autoload.php")
        site.are(403, "/doc/html/_sources/index.rst.txt", "//setup/index.php", "/libraries/")
        site.are(404, "/nothing")
