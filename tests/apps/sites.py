"""The applications as a deployment leaves them: copied to a directory of their own, built, writable where they must be.

Nothing is written into the checkout. When the tests run as root, servers become www-data, and so does what builds.
"""

from __future__ import annotations

import base64
import os
import pathlib
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from lib import php_extensions
from lib.process import ServerError
from lib.servers import BASE_INI, PHP_VERSION, ROOT, Hayate, NginxFpm

from .browser import Browser

HERE = pathlib.Path(__file__).parent
#: Whom the servers run as.
USER = "www-data" if ROOT else None
#: Where frameworks lie that no Debian has (test_frameworks.py).
SKELETONS = pathlib.Path(elsewhere) if (elsewhere := os.environ.get("HAYATE_FRAMEWORKS")) else None
#: In the environment of the applications made of them, but CodeIgniter's, which has it in .env.
SHOP = "Ada's shop"
#: Where they write.
WRITABLE = {
    "codeigniter": ["writable", "writable/session", "writable/cache", "writable/logs", "writable/debugbar", "writable/uploads"],
    "cakephp": ["tmp", "tmp/cache", "tmp/cache/models", "tmp/cache/persistent", "tmp/cache/views", "tmp/sessions", "logs"],
    "yii2": ["runtime", "runtime/logs", "web/assets"],
    "slim4": ["var"],
    "mezzio": ["data", "data/cache"],
    "laminas": ["data", "data/cache"],
}


@dataclass(frozen=True)
class Site:
    """An application ready to be served. `root` holds everything, `docroot` is what nginx is given."""

    root: pathlib.Path
    docroot: pathlib.Path
    #: Where the application may write, and the tests look.
    var: pathlib.Path
    ini: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)

    @property
    def socket(self) -> pathlib.Path:
        """Where its server listens for a proxy."""
        return self.var / "http.sock"

    def run(self, *command: str | os.PathLike[str]) -> None:
        """Runs PHP in the application's directory as the servers' user. Raises ServerError with its output."""
        flags = [flag for key, value in {**BASE_INI, **self.ini}.items() for flag in ("-d", f"{key}={value}")]
        done = subprocess.run(
            [f"/usr/bin/php{PHP_VERSION}", *flags, *command],
            cwd=self.root,
            env={"PATH": "/usr/bin:/bin", **self.env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
            **({"user": USER, "group": USER, "extra_groups": []} if USER else {}),
        )
        if done.returncode != 0:
            raise ServerError(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}")


def copy(name: str, directory: pathlib.Path, writable: Sequence[str]) -> pathlib.Path:
    """Copies an application's files, times kept (OPcache takes no file younger than two seconds); makes directories."""
    root = directory / name
    shutil.copytree(HERE / name, root, ignore=shutil.ignore_patterns("__pycache__", "var"))
    for path in [root, *root.rglob("*")]:
        path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))
    for part in writable:
        path = root / part
        path.mkdir(parents=True, exist_ok=True)
        while USER and path != root:
            shutil.chown(path, USER, USER)
            path = path.parent
    return root


def symfony(directory: pathlib.Path) -> Site:
    """The Symfony application, its class map written, its container compiled and its caches warm."""
    site = unbuilt_symfony(directory)
    build_symfony(site)
    return site


def unbuilt_symfony(directory: pathlib.Path) -> Site:
    """Its files alone, for tests that change some before they call `build_symfony`."""
    root = copy("symfony", directory, ["var", "var/sessions", "var/uploads"])
    ini = {"session.save_path": f"{root}/var/sessions", "date.timezone": "UTC"}
    return Site(root, root / "public", root / "var", ini, {"APP_ENV": "prod", "APP_SECRET": "a secret of the tests"})


def build_symfony(site: Site) -> None:
    """What a deployment does."""
    site.run("bin/build")


def laravel(directory: pathlib.Path) -> Site:
    """The Laravel application with its .env, its database filled and its caches made."""
    storage = ["app/public", "framework/cache/data", "framework/sessions", "framework/views", "logs"]
    root = copy("laravel", directory, ["bootstrap/cache", "public", *(f"storage/{part}" for part in storage)])
    (root / ".env").write_text(f"APP_KEY=base64:{base64.b64encode(os.urandom(32)).decode()}\n")
    site = Site(root, root / "public", root / "storage", {"post_max_size": "3M"})
    site.run("-r", 'touch("storage/database.sqlite");')
    for command in ("migrate --seed --force", "storage:link", "optimize", "view:cache"):
        site.run("artisan", *command.split())
    return site


def need(library: str) -> None:
    """Newer Debians do not have all of them."""
    if not pathlib.Path("/usr/share/php", library).exists():
        pytest.skip(f"there is no {library} below /usr/share/php")


def slim(directory: pathlib.Path) -> Site:
    """A Slim application, as it is."""
    need("Slim")
    root = copy("slim", directory, ["var"])
    return Site(root, root / "public", root / "var", {"session.save_path": f"{root}/var"})


def lumen(directory: pathlib.Path) -> Site:
    """A Lumen application, as it is."""
    need("Laravel/Lumen")
    root = copy("lumen", directory, ["storage/logs"])
    return Site(root, root / "public", root / "storage", {"session.save_path": f"{root}/storage"}, {"APP_DEBUG": "false"})


def skeleton(name: str, directory: pathlib.Path) -> Site:
    """A framework's skeleton with the tests' shop in it, as it is deployed: not in development."""
    root = directory / name
    shutil.copytree(SKELETONS / name, root)
    shutil.copytree(HERE / "skeletons" / name, root, dirs_exist_ok=True)
    # The skeletons say themselves that these two lines are to be taken out.
    if (index := root / "web/index.php").is_file():
        lines = index.read_text().splitlines(keepends=True)
        index.write_text("".join(line for line in lines if not line.startswith("defined('YII_")))
        os.utime(index, (made := (root / "composer.json").stat().st_mtime, made))
    for path in [root, *root.rglob("*")]:
        path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))
    for part in WRITABLE[name]:
        path = root / part
        path.mkdir(parents=True, exist_ok=True)
        # Nothing that a run of it in its own place has left there, such as a configuration with its paths.
        for file in path.iterdir():
            if file.is_file() and not file.name.startswith((".", "index.")):
                file.unlink()
        if USER:
            shutil.chown(path, USER, USER)
    public = next(root / part for part in ("public", "webroot", "web") if (root / part / "index.php").is_file())
    sessions = root / WRITABLE[name][0]
    return Site(root, public, sessions, {"session.save_path": str(sessions)}, {"SHOP_NAME": SHOP})


#: Without a network WordPress is not to wait for one. It belongs into wp-config.php, but is needed before there is one.
OFFLINE = "<?php define('WP_HTTP_BLOCK_EXTERNAL', true);\n"


def wordpress(directory: pathlib.Path) -> Site:
    """WordPress as it comes out of its archive: not configured, its directory writable for the server."""
    root = directory / "wordpress"
    # Debian's own wp-config.php looks for the site's in /etc; translations are half of the files.
    left_out = shutil.ignore_patterns("wp-config.php", ".htaccess", "languages")
    shutil.copytree("/usr/share/wordpress", root, ignore=left_out)
    uploads = root / "wp-content/uploads"
    uploads.mkdir()
    for path in (root, root / "wp-content", uploads):
        if USER:
            shutil.chown(path, USER, USER)
    (directory / "offline.php").write_text(OFFLINE)
    # Mails are kept where the tests look. PHP hands sendmail_path to a shell.
    ini = {"auto_prepend_file": f"{directory}/offline.php", "sendmail_path": f"cat >>{uploads}/mails", **php_extensions.ini("gd")}
    return Site(root, root, uploads, ini)


def server(
    mode: str, site: Site, *, workers: int = 2, proxied: bool = False, warmup: Sequence[str] = ()
) -> NginxFpm | Hayate:
    """A server of the site, not started yet.

    `reference`: nginx + php-fpm. `classic`: each request starts afresh. `worker`: the application's own worker script,
    its state is kept. `rewind`: recognised, booted by the script that comes with Hayate, rewound after each request;
    then all memory is compared with the snapshot. `fork`: the same, but each request runs in a fork of the booted process.

    `proxied`: it listens on the site's socket as well, and believes what a proxy says there. `warmup`: paths for
    `rewind`, in place of Hayate's own choice.
    """
    if mode == "reference":
        env = {f"env[{name}]": f'"{value}"' for name, value in site.env.items()}
        return NginxFpm(site.docroot, ini=site.ini, fpm=env, front_controller="/index.php", workers=workers)
    args = [flag for name, value in site.env.items() for flag in ("--env", f"{name}={value}")]
    if proxied:
        args += ["--listen", f"unix:{site.socket}", "--trusted-proxies", "unix"]
    if mode == "worker":
        args += ["--rewind", "off"]
        return Hayate(config=site.root / "hayate.toml", workers=workers, ini=site.ini, args=args, user=USER)
    if mode in {"rewind", "fork"}:
        args += ["--mode", "worker", *(["--rewind", "on", "--rewind-verify", "1"] if mode == "rewind" else ["--rewind", "fork"])]
        args += [f"--warmup={path}" for path in warmup]
    else:
        args += ["--mode", "classic"]
    return Hayate(site.root, workers=workers, ini=site.ini, args=args, user=USER)


def recognised(site: Site, *args: str) -> tuple[str, str]:
    """How a server serves it that nobody told: the mode, and what it said."""
    # OPcache keeps nothing that was written within two seconds; a project that is served is older.
    for path in site.root.rglob("*.php"):
        os.utime(path, (time.time() - 60, time.time() - 60))
    with Hayate(site.root, workers=1, ini=site.ini, user=USER, args=args) as server:
        assert Browser(server.url).get("/people/ada").text == "ada at /people/ada?"
        (app,) = server.status()["apps"]
        return app["mode"], server.log()


def change(path: pathlib.Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
