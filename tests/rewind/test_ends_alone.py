"""A stream of the application that throws or exits when it is closed, at the end of a request: the others are closed, as under php-fpm."""

from __future__ import annotations

import gzip
import pathlib
import shutil

import pytest

from lib.process import temporary_directory, wait_until
from lib.servers import Hayate, NginxFpm, Server

from . import modes

SCRIPT = """<?php
class Ends
{
    public $context;
    public static string $how = '';
    private string $path;
    public function stream_open(string $path): bool { $this->path = $path; return true; }
    public function stream_write(string $data): int { return strlen($data); }
    public function stream_close(): void
    {
        file_put_contents(__DIR__ . '/closed', "$this->path ", FILE_APPEND);
        if (!str_contains($this->path, 'bad')) {
            return;
        }
        if (self::$how === 'throw') { throw new Exception('upload failed'); }
        if (self::$how === 'exit') { @trigger_error('on the way out'); exit; }
        if (self::$how === 'fatal') { eval('class Ends {}'); }
    }
}
stream_wrapper_register('ends', Ends::class);
while (hayate_handle_request(function (): void {
    Ends::$how = $_GET['how'];
    $GLOBALS['packed'] = gzopen(__DIR__ . '/packed', 'w');
    gzwrite($GLOBALS['packed'], 'important');
    if (isset($_GET['more'])) {
        $GLOBALS['first'] = fopen('ends://bad1', 'w');
        $GLOBALS['second'] = fopen('ends://good', 'w');
    }
    $GLOBALS['last'] = fopen('ends://bad2', 'w');
    echo 'answered';
})) {}
"""


@pytest.fixture(params=["php-fpm", "on", "fork"])
def site(request: pytest.FixtureRequest):
    root = temporary_directory("ends-alone")
    root.chmod(0o777)
    (root / "worker.php").write_text(SCRIPT)
    if request.param == "php-fpm":
        server: Server = NginxFpm(root, index="worker.php", ini={**modes.INI, **modes.ONCE}, workers=1)
    else:
        args = ["--rewind", request.param, "--rewind-verify", "1", "--warmup", "off"]
        server = Hayate(root, worker=root / "worker.php", workers=1, ini=modes.INI, args=args)
    try:
        with server:
            yield root, server
    finally:
        shutil.rmtree(root)


def left(root: pathlib.Path, server: Server, query: str) -> tuple[bytes, list[str]]:
    """What is in the compressed file, and which streams of the application were closed; as php-fpm's answer is complete before."""
    packed, closed = root / "packed", root / "closed"
    packed.unlink(missing_ok=True)
    closed.unlink(missing_ok=True)
    assert modes.get(server, query) == "answered"
    assert wait_until(lambda: packed.exists() and packed.stat().st_size > 10)
    return gzip.decompress(packed.read_bytes()), closed.read_text().split()


@pytest.mark.parametrize("how", ["", "throw", "exit", "fatal"])
def test_the_others_are_closed(site: tuple[pathlib.Path, Server], how: str) -> None:
    root, server = site
    for _ in range(3):
        assert left(root, server, f"how={how}") == (b"important", ["ends://bad2"])
    if isinstance(server, Hayate):
        # php-fpm itself crashes where more code of the application runs then.
        for _ in range(2):
            assert left(root, server, f"how={how}&more=1") == (b"important", ["ends://bad2", "ends://good", "ends://bad1"])
        restarts = modes.application(server)["restarts"]
        assert set(restarts) <= ({"rewind_cleanup"} if how == "fatal" else set()), restarts
