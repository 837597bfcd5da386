"""Applications whose scripts run in the workers of another one (`pool`), as several sites share one pool of php-fpm."""

from __future__ import annotations

import concurrent.futures
import json
import os
import pathlib
import pwd
import subprocess
import signal
import threading
from collections.abc import Iterator

import pytest
import requests
from lib.process import stop_process, temporary_directory, wait_until
from lib.servers import PHP_VERSION, ROOT, Hayate, NginxFpm, hayate_binary

NAMES = ("one", "two", "three")

PAGE = """<?php
if (isset($_GET['sleep'])) { usleep(1000 * (int) $_GET['sleep']); }
if (isset($_GET['log'])) { error_log($_GET['log']); }
$own = array_intersect_key($_SERVER, array_flip(['DOCUMENT_ROOT', 'SCRIPT_FILENAME', 'SCRIPT_NAME', 'PATH_INFO', 'PHP_SELF', 'REQUEST_URI']));
ksort($own);
echo json_encode([$own, getcwd(), __FILE__, ini_get('memory_limit'), ini_get('user_agent'), require __DIR__ . '/part.php',
    $left ?? 'nothing', getenv('A')]);
$left = 'left'; putenv('A=left'); ini_set('user_agent', 'left'); chdir('/'); define('LEFT', 1);
"""
POOL = "<?php header('X-Pool: ' . getmypid() . ' ' . count(opcache_get_status()['scripts']) . ' ' . posix_geteuid());"


@pytest.fixture
def sites() -> Iterator[pathlib.Path]:
    directory = temporary_directory("pool")
    for name in NAMES:
        (directory / name / "sub").mkdir(parents=True)
        for place in ("", "sub/"):
            (directory / name / place / "index.php").write_text(PAGE)
            (directory / name / place / "part.php").write_text(f"<?php return '{name} {place}';")
        (directory / name / "pool.php").write_text(POOL)
        (directory / name / "file.txt").write_text(name)
    (directory / "two/.user.ini").write_text("memory_limit=77M\nuser_agent=two")
    (directory / "two/sub/.user.ini").write_text("user_agent=sub")
    yield directory


def config(sites: pathlib.Path, first: str = "workers = 1", others: str = 'pool = "one"') -> str:
    apps = [f'[[app]]\nname = "{name}"\nroot = "{sites}/{name}"\nhosts = "{name}.test"\n{first if name == "one" else others}\n' for name in NAMES]
    return "\n".join(apps)


def get(server: Hayate, name: str, path: str) -> requests.Response:
    return requests.get(server.url + path, headers={"Host": f"{name}.test"}, timeout=60)


def of_pool(server: Hayate, name: str) -> list[int]:
    """Process, scripts in OPcache, user."""
    return [int(word) for word in get(server, name, "/pool.php").headers["X-Pool"].split()]


def test_each_is_served_as_by_a_pool_of_its_own(sites: pathlib.Path) -> None:
    paths = ["/index.php", "/", "/sub/", "/sub/index.php/a/b?c=d", "/file.txt", "/gone.php", "/gone"]
    def seen(answer: requests.Response) -> tuple:
        return answer.status_code, answer.text if answer.ok else None
    expected = {}
    for name in NAMES:
        with NginxFpm(sites / name) as fpm:
            expected[name] = [seen(requests.get(fpm.url + path, timeout=60)) for path in paths]
    with Hayate(config=config(sites)) as server:
        for _ in range(2):
            for name in NAMES:
                assert [seen(get(server, name, path)) for path in paths] == expected[name]


def test_they_have_one_opcache_and_one_set_of_workers(sites: pathlib.Path) -> None:
    with Hayate(config=config(sites, "workers = 1\n[app.ini]\n'opcache.file_update_protection' = 0")) as server:
        for name in NAMES:
            assert get(server, name, "/").json()[5] == f"{name} "
        said = [of_pool(server, name) for name in NAMES]
        assert len({process for process, _, _ in said}) == 1
        # index.php, part.php and pool.php of each.
        assert [scripts for _, scripts, _ in said] == [7, 8, 9]
        status = server.status()
        assert [app["name"] for app in status["apps"]] == ["one"]
        assert [(app["name"], app["pool"]) for app in status["in_pools"]] == [("two", "one"), ("three", "one")]
        metrics = server.metrics()
        assert all(f'hayate_requests_total{{app="{name}"' in metrics for name in NAMES), metrics


def test_what_is_relative_is_never_in_another_sites_directory(sites: pathlib.Path) -> None:
    """The working directory when no script's own is in force: one's root, others' document roots."""
    for name in NAMES:
        (sites / name / "ends.php").write_text("<?php register_shutdown_function(function () { file_put_contents('left', $_GET['n'], FILE_APPEND); });")
    with Hayate(config=config(sites)) as server:
        for i, name in enumerate(["two", "one", "three", "three", "two", "one"]):
            assert get(server, name, f"/ends.php?n={i}").status_code == 200
        assert {name: (sites / name / "left").read_text() for name in NAMES} == {"one": "15", "two": "04", "three": "23"}


def test_the_limit_of_workers_is_one(sites: pathlib.Path) -> None:
    with Hayate(config=config(sites, "workers = 1\nqueue_timeout = '1s'")) as server:
        slow = threading.Thread(target=get, args=(server, "two", "/?sleep=4000"))
        slow.start()
        assert wait_until(lambda: server.status()["apps"][0]["workers"][0]["state"] == "serving")
        assert get(server, "three", "/").status_code == 503
        assert get(server, "three", "/file.txt").text == "three"
        slow.join()
        assert get(server, "three", "/").status_code == 200


@pytest.mark.parametrize("before", ["own", "shared"])
def test_a_reload_moves_requests_that_wait(sites: pathlib.Path, before: str) -> None:
    texts = {"shared": config(sites), "own": config(sites, others="workers = 1")}
    file = sites / "hayate.toml"
    file.write_text(texts.pop(before))
    with Hayate(config=file) as server, concurrent.futures.ThreadPoolExecutor(5) as clients:
        def pool() -> dict:
            return next(app for app in server.status()["apps"] if app["name"] == ("two" if before == "own" else "one"))
        # Nobody is left to run what comes, and nobody follows.
        stop_process(pool()["zygote"])
        os.kill(pool()["workers"][0]["pid"], signal.SIGKILL)
        assert wait_until(lambda: pool()["workers"] == [])
        waiting = [clients.submit(get, server, "two", "/sub/") for _ in range(5)]
        assert wait_until(lambda: pool()["queue"] == 5)
        file.write_text(*texts.values())
        assert server.reload().returncode == 0, server.log_tail()
        assert [answer.result().json()[5] for answer in waiting] == ["two sub/"] * 5
        assert get(server, "one", "/").json()[5] == "one "


@pytest.mark.skipif(not ROOT, reason="only root becomes somebody else")
def test_its_user_is_that_of_the_workers(sites: pathlib.Path) -> None:
    sites.chmod(0o755)
    secret = sites / "secret.txt"
    secret.write_text("secret")
    secret.chmod(0o640)
    os.symlink(secret, sites / "two/link.txt")
    with Hayate(config='user = "nobody"\n' + config(sites, 'user = "www-data"')) as server:
        assert {of_pool(server, name)[2] for name in NAMES} == {pwd.getpwnam("www-data").pw_uid}
        # Files that the user may not read, a link does not open to visitors.
        assert get(server, "two", "/link.txt").status_code == 403


def test_where_the_pool_fails_others_serve(sites: pathlib.Path) -> None:
    text = config(sites) + f'[[app]]\nname = "four"\nroot = "{sites}/three"\nhosts = "four.test"\n'
    with Hayate(config=text.replace(f"{sites}/one", f"{sites}/gone")) as server:
        assert [get(server, name, "/").status_code for name in (*NAMES, "four")] == [503, 503, 503, 200]
        assert get(server, "two", "/file.txt").status_code == 503
        assert {app["name"] for app in server.status()["failed"]} == set(NAMES)


class OnAMachineWithPackages(Hayate):
    """Where there is a user `hayate`."""

    def command(self) -> list[str]:
        users = self.dir / "passwd"
        users.write_text(pathlib.Path("/etc/passwd").read_text() + "hayate:x:64321:65534::/nonexistent:/usr/sbin/nologin\n")
        script = 'mount --bind "$0" /etc/passwd && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", script, str(users), *super().command()]


@pytest.mark.skipif(not ROOT, reason="only root becomes somebody else")
@pytest.mark.parametrize("gone", NAMES)
def test_the_front_is_nobody_special_whatever_fails(sites: pathlib.Path, gone: str) -> None:
    """With the user that packages make: where a site of the pool was not served, the front ran as root."""
    text = config(sites, 'user = "www-data"').replace(f"{sites}/{gone}", f"{sites}/gone")
    text += f'[[app]]\nname = "four"\nroot = "{sites}/three"\nhosts = "four.test"\nuser = "www-data"\n'
    with OnAMachineWithPackages(config=text) as server:
        assert get(server, "four", "/").status_code == 200
        status = pathlib.Path(f"/proc/{server.status()['front']}/status").read_text()
        assert "\nUid:\t64321\t64321\t64321\t64321\n" in status, status


def test_check_looks_at_each(sites: pathlib.Path) -> None:
    (sites / "two/composer.json").write_text(json.dumps({"require": {"ext-nowhere": "*", "php": ">=99"}}))
    (sites / "hayate.toml").write_text(config(sites))
    done = subprocess.run([hayate_binary(), "check", "-c", sites / "hayate.toml"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    two = done.stdout.split("application   two")[1].split("application   three")[0]
    assert "mode        classic, in the workers of 'one' (pool)" in two
    assert "ext-nowhere" in two and "99" in two, two
    # What helps is said so that the configuration takes it.
    other = "8.4" if PHP_VERSION == "8.5" else "8.5"
    (sites / "two/composer.json").write_text(json.dumps({"require": {"php": f"{other}.*"}}))
    (sites / "hayate.toml").write_text(config(sites, "workers = 1\n[app.ini]\nextension = 'nowhere'"))
    done = subprocess.run([hayate_binary(), "check", "-c", sites / "hayate.toml"], capture_output=True, text=True, timeout=60, check=False)
    assert f"set php = \"{other}\" of 'one', in whose workers it runs" in done.stdout, done.stdout
    assert done.stdout.count("extension = nowhere is not loaded") == 1, done.stdout


def test_explain_says_where_scripts_run(sites: pathlib.Path) -> None:
    (sites / "hayate.toml").write_text(config(sites))
    done = subprocess.run([hayate_binary(), "explain", "-c", sites / "hayate.toml"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "two: its scripts run in the workers of 'one' (pool), as that one's do" in done.stdout, done.stdout
