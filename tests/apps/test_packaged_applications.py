"""The ready-made rules of docs/rules.md on Debian 12's packages of the applications, which scripts/applications unpacks."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

import pytest

from lib.servers import PHP_VERSION, REPOSITORY

from .test_application_rules import PHP_NAMES, served, ways

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
    below = ("extensions/Own", "skins/Own", "resources/own", "own/of.site")
    for name in ("images/a/ab", "images/deleted", "images/temp", "images/lockdir", "cache", "docs", *below):
        (root / name).mkdir(parents=True)
    (root / "images/a/ab/A.png").write_bytes(PICTURE)
    scripts = [f"{place}/{name}.php" for place in below for name in ("index", "evil")] + ["own.php", "profileinfo.php"]
    images = [f"images/evil.{extension}" for extension in (*PHP_NAMES, "html", "htm")]
    for name in (*scripts, *images, "images/deleted/B.png", "images/temp/C.png", "images/lockdir/D", "cache/l10n", "docs/x.php", "skins/Own/a.css"):
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
        assert dict(site.ask("/resources/assets/wiki.png").headers)["Cache-Control"] == "public, max-age=604800"
        site.are(403, "/includes/DefaultSettings.php", "/languages/Language.php", "/maintenance/install.php", "/vendor/autoload.php", "/mw-config/index.php")
        site.are(403, "/mw-config/", "/cache/l10n", "/images/deleted/B.png", "//includes/WebStart.php", "/vendor/composer/installed.json")
        site.are(403, "/images/temp/C.png", "/images/lockdir/D", "/docs/x.php")
        site.are(403, *ways(*("/" + name for name in images)), "/images/%65vil.php")
        site.are(404, "/composer.json", "/nothing")
        # Its own guidance names the scripts that may run.
        site.are(404, *ways("/LocalSettings.php", "/autoload.php", "/resources/Resources.php", *("/" + name for name in scripts)))
        site.are(404, *(f"/{place}/" for place in below))
        site.are(200, "/skins/Own/a.css", "/opensearch_desc.php")
        site.says("/img_auth.php/a/ab/A.png", "Access denied", 403)
        site.says("/thumb.php?f=A.png&width=10", "Error generating thumbnail", 404)
        # Titles are no scripts, and neither is one slash too many another address.
        for target in ("/wiki/Foo.php/x", "/wiki/Foo.php", "/wiki/Extensions/Own/evil.php", "/index.php/Foo.php/x", "/index.php?title=Foo.php"):
            site.says(target, ".php", 404)
            site.says(target, " - The Wiki</title>", 404)
        site.says("//wiki/Main_Page", "MediaWiki has been installed")
        site.says("//wiki/St._Louis", "<title>St. Louis - The Wiki</title>", 404)
        site.says("//api.php?action=query&meta=siteinfo&format=json", '"sitename":"The Wiki"')
        site.says("//index.php?title=Main_Page", "MediaWiki has been installed")
    # As the page says how to install it.
    with served("MediaWiki", root, {'"/mw-config", ': "", "|load|": "|load|mw-config/index|"}) as site:
        site.says("/mw-config/index.php", "<title>MediaWiki 1.39")
        site.are(404, *ways("/mw-config/overrides/x.php", "/LocalSettings.php"))
        site.says("/wiki/Main_Page", "MediaWiki has been installed")


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
    for name in ("README", "COPYING", "lib/plugins/README"):
        (root / name).write_text("a file of its makers")
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
        assert dict(site.ask("/lib/tpl/dokuwiki/images/logo.png").headers)["Cache-Control"] == "public, max-age=31536000"
        site.are(200, "/lib/exe/css.php", "/lib/exe/js.php", "/lib/tpl/dokuwiki/images/logo.png", "/lib/exe/opensearch.php")
        site.are(403, "/data/pages/start.txt", "/data/", "/conf/local.php", "/conf/dokuwiki.php", "/inc/init.php", "/bin/wantedpages.php", "/vendor/autoload.php")
        site.are(403, "//data/pages/start.txt", "/vendor/composer/installed.json")
        site.are(403, *ways("/install.php", "/data/pages/start.txt", "/conf/local.php", "/inc/init.php"))
        site.are(404, *ways("/README", "/VERSION", "/COPYING", "/lib/plugins/README"), "/lib/plugins/authpdo/_test/test.sqlite3")
        # No page of a namespace is a file: the application says that there is none.
        site.says("/nowhere:at_all", "This topic does not exist yet")
    # As the page says how to install it; here it has been.
    with served("DokuWiki", root, {', "/install.php"]': "]", '"/index.php", ': '"/index.php", "/install.php", '}) as site:
        site.says("/install.php", "DokuWiki Installer")
        site.are(403, "/conf/local.php")


def test_rules_of_phpmyadmin(hayate_command, tmp_path: pathlib.Path) -> None:
    tmp_path.chmod(0o755)
    root, package = tmp_path / "site", UNPACKED / "phpmyadmin"
    shutil.copytree(package / "usr/share/phpmyadmin", root, ignore=shutil.ignore_patterns("locale", "html"), ignore_dangling_symlinks=True)
    (root / "doc/html/_sources").mkdir(parents=True)
    (root / "doc/html/_sources/index.rst.txt").write_text("source")
    (root / "doc/html/index.html").write_text("documentation")
    for name in ("setup/index.php", "setup/lib/x.php", "tmp/twig/x.php", "config/config.inc.php", "examples/signon.php", "test/x.php", "src/x.php"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("<?php echo 'RAN';")
    for name in ("README", "RELEASE-DATE-5.2.1", "config.inc.php"):
        (root / name).write_text("not for visitors")
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
        site.are(403, *ways("/setup/index.php", "/setup/lib/x.php", "/tmp/twig/x.php", "/config/config.inc.php", "/examples/signon.php", "/src/x.php"))
        site.are(403, *ways("/libraries/classes/Core.php", "/templates/header.twig", "/sql/create_tables.sql", "/vendor/autoload.php", "/test/x.php"))
        site.are(404, *ways("/config.inc.php", "/config.sample.inc.php", "/autoload.php", "/README", "/RELEASE-DATE-5.2.1"))
        site.are(404, "/nothing")
