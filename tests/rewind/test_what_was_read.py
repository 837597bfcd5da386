"""Libraries that read a file when they are made and write it anew when they are destroyed: under php-fpm each request reads what the one before wrote."""

from __future__ import annotations

import json
import pathlib

import pytest

from lib.process import wait_until

from . import modes

VISITORS = ["Ada", "Grace", "Joan", "Mary"]
#: Made by the boot, or by the first request that needs it.
MADE = {"boot": "$jar = $make();", "request": ""}
SITE = r"""
spl_autoload_register(static fn (string $class) => require '/usr/share/php/' . strtr($class, '\\', '/') . '.php');
$make = static fn () => new GuzzleHttp\Cookie\FileCookieJar(__DIR__ . '/cookies.json', true);
$jar = null;
%s
$handle = static function () use (&$jar, $make): void {
    $jar ??= $make();
    $v = $_GET['v'] ?? 'Warm';
    $jar->setCookie(new GuzzleHttp\Cookie\SetCookie(['Name' => $v, 'Value' => $v, 'Domain' => 'example.org', 'Expires' => time() + 3600]));
    echo 1;
};
"""
LOOP = "while (hayate_handle_request($handle)) {}"


def cookies(directory: pathlib.Path) -> set[str]:
    """Whose are in the jar. It is written when the answer may be out already."""
    try:
        return {cookie["Value"] for cookie in json.loads((directory / "cookies.json").read_text())}
    except (OSError, json.JSONDecodeError):
        return set()


@pytest.mark.parametrize("warmup", ["off", "/"])
@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize(("rewind", "boot"), modes.MODES)
def test_cookies_that_guzzle_keeps_in_a_file(rewind: str, boot: str, made: str, warmup: str, directory: pathlib.Path) -> None:
    """Each visitor's stays: what holds a jar since the boot is not rewound, and the log says why."""
    directory.chmod(0o777)
    modes.write(directory, SITE % MADE[made] + LOOP)
    (directory / "index.php").write_text("<?php" + SITE % MADE[made] + "$handle();")
    with modes.hayate(directory, rewind, boot, workers=1, warmup=warmup) as server:
        for n, visitor in enumerate(VISITORS, 1):
            assert modes.get(server, f"v={visitor}") == "1"
            assert wait_until(lambda n=n: cookies(directory) >= set(VISITORS[:n])), (cookies(directory), server.log()[-2000:])
        application = modes.application(server)
        assert application["mode"] == ("classic" if made == "boot" else "worker"), application
        said = r"left an object of the class GuzzleHttp\Cookie\FileCookieJar"
        assert (said in server.log()) == (made == "boot" or warmup != "off"), server.log()
