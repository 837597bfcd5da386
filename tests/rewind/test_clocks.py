"""No clock of PHP or of an extension stays at the boot's time, and what is kept for a time runs out as under php-fpm.

Each test plays the same steps with php-fpm, which boots for each request, and with workers that booted once.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import time
from collections.abc import Iterator

import pytest
import requests

from lib.process import temporary_directory, wait_until
from lib.servers import ROOT, Hayate, NginxFpm

HERE = pathlib.Path(__file__).parent / "clocks"
#: OPcache takes no file that is younger than two seconds.
OLD = 1_700_000_000
INI = {
    "realpath_cache_ttl": "1",
    "opcache.revalidate_freq": "1",
    "opcache.file_update_protection": "1",
    "opcache.memory_consumption": "8",
    "opcache.interned_strings_buffer": "1",
    "opcache.max_wasted_percentage": "1",
    "apc.use_request_time": "1",
    "date.timezone": "UTC",
}


class Site:
    """The application behind one server, with files of its own."""

    def __init__(self, kind: str) -> None:
        self.files = temporary_directory("clocks")
        if ROOT:
            shutil.chown(self.files, "www-data")
        for name in ("one", "two"):
            (self.files / name).mkdir()
            self.write(f"{name}/data.php", f"<?php return '{name}';", old=True)
        (self.files / "current").symlink_to("one")
        (self.files / "size.txt").write_text("1")
        root = self.files / "root"
        root.mkdir()
        shutil.copy(HERE / "worker.php", root / "index.php")
        if kind == "php-fpm":
            self.server: Hayate | NginxFpm = NginxFpm(root, ini=INI, fpm={"env[FILES]": self.files}, workers=1)
        else:
            more = ("--warmup", "/index.php?step=clocks" if "warm" in kind else "off", *(("--env", "PAIR=1") if "private" in kind else ()))
            self.server = Hayate(
                root,
                worker=root / "index.php",
                workers=1,
                ini=INI,
                user="www-data" if ROOT else None,
                args=("--rewind", kind.split()[0], *more, "--env", f"FILES={self.files}"),
            )

    def write(self, name: str, text: str, old: bool = False) -> None:
        file = self.files / name
        file.write_text(text)
        if old:
            os.utime(file, (OLD, OLD))

    def do(self, step: str, name: str = "") -> object:
        answer = requests.get(f"{self.server.url}/index.php?step={step}&name={name}", timeout=60)
        assert answer.status_code == 200, answer.text + self.server.log()[-2000:]
        return answer.json()


@pytest.fixture(params=["php-fpm", "on", "fork", "off", "on warm private", "fork warm"])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    site = Site(request.param)
    with site.server:
        yield site
    shutil.rmtree(site.files, ignore_errors=True)


def test_all_clocks_go_on(site: Site) -> None:
    """A while after the boot each of them says what the clock on the wall says."""
    site.do("clocks")
    time.sleep(2.1)
    before = int(time.time())
    clocks = site.do("clocks")
    after = int(time.time())
    assert isinstance(clocks, dict)
    wrong = {name: clock - before for name, clock in clocks.items() if not before - 1 <= clock <= after + 1}
    assert not wrong, "seconds since"


def test_a_young_file_is_cached_when_it_is_old_enough(site: Site) -> None:
    """Written after the boot, and too young for OPcache at first: so that the machine may be slow, its time is two seconds ahead."""
    site.write("young.php", "<?php return 'young';")
    os.utime(site.files / "young.php", (time.time() + 2, time.time() + 2))
    assert site.do("include", "young.php") == "young"
    assert site.do("cached", "young.php") is False
    time.sleep(4.1)
    assert site.do("include", "young.php") == "young"
    assert site.do("cached", "young.php") is True


def test_a_changed_file_is_seen(site: Site) -> None:
    """A cached script is looked at again after opcache.revalidate_freq."""
    site.write("changing.php", "<?php return 'before';", old=True)
    assert [site.do("include", "changing.php") for _ in range(3)] == ["before"] * 3
    site.write("changing.php", "<?php return 'after, and longer';")
    time.sleep(2.1)
    assert site.do("include", "changing.php") == "after, and longer"
    assert [site.do("include", "changing.php") for _ in range(3)] == ["after, and longer"] * 3
    assert site.do("cached", "changing.php") is True


def test_a_full_opcache_starts_afresh(site: Site) -> None:
    """Scripts that change until there is no room left; what comes later is cached all the same."""
    large = "".join(f"function f%d_{n}() {{ return ['{n}' => 'value {n}', {n} => [{n}]]; }}\n" for n in range(400))
    for n in range(60):
        site.write(f"large{n}.php", f"<?php if (false) {{ {large.replace('%d', str(n))} }} return {n};", old=True)
        assert site.do("include", f"large{n}.php") == n
        site.do("change", f"large{n}.php")
        if site.do("full") != [True, False, 0]:
            break
    else:
        pytest.fail("OPcache did not become full")
    site.write("late.php", "<?php return 'late';", old=True)

    def cached() -> bool:
        return site.do("include", "late.php") == "late" and site.do("cached", "late.php") is True

    assert wait_until(cached, 60, 0.1), "a script that comes later was never cached"
    assert site.do("full")[:2] == [True, False]
    if isinstance(site.server, Hayate):
        assert site.server.logged("OPcache is full") and site.server.logged("booted anew")
        (app,) = site.server.status()["apps"]
        assert app["fallback"] is None and app["mode"] == "worker"


@pytest.mark.parametrize("site", ["on", "fork", "on warm private"], indirect=True)
def test_real_paths_of_the_boot_are_kept_while_they_hold(site: Site) -> None:
    """When realpath_cache_ttl is over, requests do not resolve the boot's paths again, each for itself."""
    for _ in range(6):
        time.sleep(0.4)
        site.do("include", "current/data.php")
    kept = site.do("paths")
    assert isinstance(kept, dict)
    assert kept[f"{site.files}/current/data.php"] == [f"{site.files}/one/data.php", True]
    assert all(valid for _, valid in kept.values()), kept


def test_a_real_path_that_changed_is_seen(site: Site) -> None:
    """A deployment that moves a link, without `hayate reload`."""
    assert site.do("include", "current/data.php") == "one"
    (site.files / "next").symlink_to("two")
    (site.files / "next").rename(site.files / "current")
    time.sleep(2.1)
    # The clock of a worker that waits stands until it is asked.
    site.do("size")
    time.sleep(2.1)
    assert [site.do("include", "current/data.php") for _ in range(3)] == ["two"] * 3


def test_the_stat_cache_of_the_boot_is_not_kept(site: Site) -> None:
    site.write("size.txt", "12345")
    assert [site.do("size") for _ in range(2)] == [5, 5]
    site.write("size.txt", "1234567")
    assert site.do("size") == 7


def test_apcu_entries_expire_by_the_time_of_the_request(site: Site) -> None:
    for _ in range(20):
        begun = time.monotonic()
        assert site.do("remember") is True
        recalled = site.do("recall")
        # It is kept for a second.
        if time.monotonic() - begun < 0.9:
            break
    assert recalled == "value"
    time.sleep(2.1)
    assert site.do("recall") is False
