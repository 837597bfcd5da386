"""Programs that the boot has started and not waited for: each request has one of its own, as under php-fpm, and so such a boot is not rewound."""

from __future__ import annotations

import pathlib

import pytest

from . import modes
from .test_opened_again import files, hayate, php_fpm, prepare

CAT = "$f = proc_open('cat', [['pipe', 'r'], ['pipe', 'w']], $all);"

CASES = {
    "a pipe to it": ("$f = popen(\"cat >> $d/out\", 'w');", "fwrite($f, $v); pclose($f); echo 1;", "popen()"),
    "two pipes": (CAT, "fwrite($all[0], $v); fclose($all[0]); echo stream_get_contents($all[1]), proc_close($f);", "proc_open()"),
    "that has ended": ("$f = proc_open('exit 3', [], $all); usleep(200000);", "echo proc_close($f);", "proc_open()"),
    "from which nobody reads": ("$f = popen('echo $$', 'r');", "echo is_numeric(trim(fgets($f)));", "popen()"),
}


@modes.each_mode
@pytest.mark.parametrize("name", CASES)
def test_as_under_php_fpm(name: str, rewind: str, boot: str, directory: pathlib.Path) -> None:
    boot_code, request, by = CASES[name]
    visitors = ["Ada", "Grace", "Joan"]
    prepare(directory, boot_code, request, {"out": ""})
    with php_fpm(directory) as fpm:
        expected = [modes.get(fpm, f"v={visitor}") for visitor in visitors]
    left = files(directory)
    prepare(directory, boot_code, request, {"out": ""})
    with hayate(directory, rewind, boot) as server:
        assert [modes.get(server, f"v={visitor}") for visitor in visitors] == expected, server.log()[-3000:]
        assert files(directory) == left
        application = modes.application(server)
        assert application["mode"] == "classic" and f"left a child process of {by}" in application["fallback"]["why"], application


def test_a_program_that_a_warm_up_request_leaves(directory: pathlib.Path) -> None:
    """It is no other visitor's: the application boots again without warm-up."""
    request = "$child = $GLOBALS['child'] ??= proc_open('cat', [['pipe', 'r'], ['pipe', 'w']], $all); echo proc_get_status($child)['running'], proc_terminate($child);"
    prepare(directory, "", request, {})
    with hayate(directory, "on", "shared", warmup="/") as server:
        assert modes.get(server) == "11"
        assert "a warm-up request left a child process of proc_open()" in server.log()
        assert modes.application(server)["mode"] == "worker"
