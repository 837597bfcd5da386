"""What resources and objects of the boot hold back is written at the end of each request, or the application is not rewound.

php-fpm, which closes what its boot has opened, says what is right. Nothing is taken for harmless because nobody knows it: an
extension of the tests' own stands for those that nobody here has heard of.
"""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess

import pytest

from lib import php_extensions
from lib.process import ServerError, accepts, free_port, wait_until
from lib.servers import PHP, PHP_VERSION, Hayate

from . import modes
from .test_extensions import build

VISITORS = ("Ada", "Grace Hopper", "Joan", "M" * 6000)


#: Boot and request.
WRITERS = {
    "XMLWriter to another file": (
        "$w = new XMLWriter(); $w->openMemory(); $w->startElement('log');",
        "$w->openUri(__DIR__ . '/out'); $w->startElement('own'); $w->writeElement('v', $_GET['v']);",
    ),
}


@pytest.mark.parametrize("rewind", ["on", "fork"])
@pytest.mark.parametrize("kind", WRITERS)
def test_what_a_writer_of_the_boot_holds_back_is_written(kind: str, rewind: str, directory: pathlib.Path) -> None:
    boot, request = WRITERS[kind]
    directory.chmod(0o777)
    # Under php-fpm who only looks whether the one before is over boots nothing.
    modes.write(
        directory,
        f"if (isset($_GET['idle'])) {{ exit('idle'); }} {boot}\n"
        f"while (hayate_handle_request(function () {{ global $w; {request} }})) {{}}\n",
    )
    out = directory / "out"
    with modes.php_fpm(directory, workers=1) as fpm:
        expected = []
        for visitor in VISITORS:
            modes.get(fpm, f"v={visitor}")
            assert modes.get(fpm, "idle=1") == "idle"
            expected.append(out.read_text())
    assert all(visitor in text for visitor, text in zip(VISITORS, expected, strict=True))
    out.unlink()
    with modes.hayate(directory, rewind, "private", workers=1, args=("--rewind-verify", "1")) as server:
        for visitor, text in zip(VISITORS, expected, strict=True):
            modes.get(server, f"v={visitor}")
            assert wait_until(lambda text=text: out.exists() and out.read_text() == text), out.read_text()
        application = modes.application(server)
    assert application["restarts"] == {} and application["fallback"] is None


#: Boot and request; the request looks at what it has written when it has dropped the writer.
DROPPED = {
    "XMLWriter to another file": (
        "$o = new stdClass(); $o->w = new XMLWriter(); $o->w->openMemory(); $o->w->startElement('log');",
        "$o->w->openUri(__DIR__ . '/out'); $o->w->startElement('own'); $o->w->writeElement('v', $_GET['v']);",
    ),
}
if PHP_VERSION >= "8.4":
    DROPPED["XMLWriter to a stream"] = (
        "$o = new stdClass(); $to = fopen(__DIR__ . '/out', 'a'); $o->w = XMLWriter::toStream($to);",
        "$o->w->startElement('own'); $o->w->writeElement('v', $_GET['v']);",
    )


@pytest.mark.parametrize("kind", DROPPED)
def test_what_a_writer_of_the_boot_holds_back_is_written_where_a_request_drops_it(kind: str, directory: pathlib.Path) -> None:
    boot, request = DROPPED[kind]
    directory.chmod(0o777)
    drops = "$o->w = null; echo file_get_contents(__DIR__ . '/out');"
    modes.write(directory, f"{boot} while (hayate_handle_request(function () {{ global $o; {request} {drops} }})) {{}}")
    out = directory / "out"
    with modes.php_fpm(directory, workers=1) as fpm:
        expected = [modes.get(fpm, f"v={visitor}") for visitor in VISITORS]
    assert all(visitor in text for visitor, text in zip(VISITORS, expected, strict=True))
    for rewind in ("on", "fork"):
        out.unlink()
        with modes.hayate(directory, rewind, "private", workers=1, args=("--rewind-verify", "1")) as server:
            assert [modes.get(server, f"v={visitor}") for visitor in VISITORS] == expected
            application = modes.application(server)
        assert application["restarts"] == {} and application["fallback"] is None


BUFFERED = """
$m = new Memcached();
$m->setOption(Memcached::OPT_BUFFER_WRITES, true);
$m->addServer('127.0.0.1', (int) getenv('MEMCACHED'));
while (hayate_handle_request(function () use ($m) {
    if (isset($_GET['v'])) {
        $m->set($_GET['v'], 'was here');
        echo 'set';
    } else {
        $own = new Memcached();
        $own->addServer('127.0.0.1', (int) getenv('MEMCACHED'));
        echo json_encode($own->getMulti(['Ada', 'Grace', 'Joan', 'Mary']));
    }
})) {
}
"""


@pytest.mark.skipif(not php_extensions.is_there("memcached") or shutil.which("memcached") is None, reason="memcached is not installed")
@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_what_memcached_buffers_is_sent(rewind: str, directory: pathlib.Path) -> None:
    """It connects with the first that is sent: in the request."""
    modes.write(directory, BUFFERED)
    port = free_port()
    visitors = ("Ada", "Grace", "Joan", "Mary")
    with subprocess.Popen(["memcached", "-l", "127.0.0.1", "-p", str(port), "-u", "nobody"]) as memcached:
        try:
            assert wait_until(lambda: accepts(port))
            args = ("--env", f"MEMCACHED={port}", "--rewind-verify", "1")
            with modes.hayate(directory, rewind, "private", workers=1, args=args) as server:
                assert [modes.get(server, f"v={visitor}") for visitor in visitors] == ["set"] * 4
                # Memcached reads what was sent by one connection when it likes, and answers another meanwhile.
                assert wait_until(lambda server=server: json.loads(modes.get(server)) == dict.fromkeys(visitors, "was here"))
                assert modes.application(server)["restarts"] == {} and modes.application(server)["fallback"] is None
        finally:
            memcached.terminate()


HEARS = """
final class Lease
{
    public $context;

    public function stream_open(): bool { return true; }

    public function stream_read(): string { return ''; }

    public function stream_eof(): bool { return true; }

    public function stream_stat(): array { return []; }

    public function stream_close(): void { file_put_contents(__DIR__ . '/out', "stream\n", FILE_APPEND); }

    public function dir_opendir(): bool { return true; }

    public function dir_readdir(): false { return false; }

    public function dir_closedir(): bool { return (bool) file_put_contents(__DIR__ . '/out', "directory\n", FILE_APPEND); }
}
final class Filter extends php_user_filter
{
    public function filter($in, $out, &$consumed, bool $closing): int
    {
        while ($bucket = stream_bucket_make_writeable($in)) {
            stream_bucket_append($out, $bucket);
        }
        return PSFS_PASS_ON;
    }

    public function onClose(): void { file_put_contents(__DIR__ . '/out', "filter\n", FILE_APPEND); }
}
stream_wrapper_register('lease', Lease::class);
stream_filter_register('hears', Filter::class);
$lease = fopen('lease://x', 'r');
$directory = opendir('lease://x');
$file = fopen(__FILE__, 'r');
stream_filter_append($file, 'hears', STREAM_FILTER_READ);
$memory = fopen('php://memory', 'w+');
stream_filter_append($memory, 'hears', STREAM_FILTER_WRITE);
while (hayate_handle_request(function () {
    global $file;
    if (isset($_GET['close'])) {
        fclose($file);
    }
    echo 'served';
})) {
}
"""


@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_code_of_the_application_hears_of_the_end_of_what_it_reads(rewind: str, directory: pathlib.Path) -> None:
    modes.write(directory, HEARS)
    out = directory / "out"
    with modes.php_fpm(directory, workers=1) as fpm:
        for query in ("", "close=1", ""):
            assert modes.get(fpm, query) == "served"
        assert wait_until(lambda: out.read_text().count("\n") == 12), out.read_text()
        expected = out.read_text()
    assert expected.count("stream\n") == expected.count("directory\n") == 3 and expected.count("filter\n") == 6
    out.unlink()
    with modes.hayate(directory, rewind, "shared", workers=1, args=("--rewind-verify", "1")) as server:
        for query in ("", "close=1", ""):
            assert modes.get(server, query) == "served"
        assert wait_until(lambda: out.exists() and out.read_text().count("\n") == 12), out.read_text()
        assert modes.application(server)["restarts"] == {} and modes.application(server)["fallback"] is None
    assert sorted(out.read_text().splitlines()) == sorted(expected.splitlines())


#: What a request gives a file of the boot that holds back what it writes: a FILE of libc's, a filter.
GIVEN = {
    "to curl": "$curl = curl_init('file://' . __DIR__ . '/worker.php'); curl_setopt($curl, CURLOPT_STDERR, $out);"
    "curl_setopt($curl, CURLOPT_RETURNTRANSFER, true); curl_exec($curl); SAY",
    "to curl of the boot": "curl_setopt($GLOBALS['curl'], CURLOPT_STDERR, $out); curl_exec($GLOBALS['curl']); SAY",
    "a filter": "stream_filter_append($out, 'convert.base64-encode', STREAM_FILTER_WRITE); SAY",
    "a compressor": "stream_filter_append($out, 'zlib.deflate', STREAM_FILTER_WRITE, ['window' => 31]); SAY",
}
GIVES = r"""
$out = fopen(__DIR__ . '/out', 'a');
$curl = curl_init('file://' . __DIR__ . '/worker.php');
curl_setopt($curl, CURLOPT_RETURNTRANSFER, true);
while (hayate_handle_request(function () use ($out) {
    GIVE
    echo 'served';
})) {
}
"""


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_what_a_request_has_held_back_in_a_file_of_the_boot(rewind: str, given: str, directory: pathlib.Path) -> None:
    say = "if (!isset($_GET['nothing'])) { fwrite($out, \"of $_GET[who]\\n\"); }"
    modes.write(directory, GIVES.replace("GIVE", GIVEN[given].replace("SAY", say)))
    out = directory / "out"
    out.touch(0o666)
    out.chmod(0o666)
    queries = ("who=Ada", "who=Grace", "nothing=1", "who=John")

    def play(server) -> bytes:
        for query in queries:
            before = out.read_bytes()
            assert modes.get(server, query) == "served"
            assert query == "nothing=1" or wait_until(lambda before=before: out.read_bytes() != before)
        return out.read_bytes()

    with modes.php_fpm(directory, workers=1) as fpm:
        expected = play(fpm)
    out.write_bytes(b"")
    with modes.hayate(directory, rewind, "shared", workers=1, args=("--rewind-verify", "1")) as server:
        assert play(server) == expected
        assert modes.application(server)["restarts"] == {} and modes.application(server)["fallback"] is None


#: What libcurl has to say at the end of a request: that it cannot write its cookies. The log is the boot's, a request's, or closed by then.
#: Since 8.17 it says nothing when a handle is freed; since 8.18 the jar of a handle that has transferred nothing is not written.
JAR = r"""
$log = fopen(__DIR__ . '/out', 'a');
$curl = curl_init('file:///dev/null');
curl_setopt_array($curl, [CURLOPT_COOKIEFILE => '', CURLOPT_COOKIELIST => 'Set-Cookie: a=b; domain=localhost']);
curl_exec($curl);
curl_setopt_array($curl, [CURLOPT_VERBOSE => true, CURLOPT_COOKIEJAR => '/nowhere/jar']);
BOOT
while (hayate_handle_request(function () {
    REQUEST
    echo 'served';
})) {
}
"""
LOGS = {
    "of the boot": ("curl_setopt($curl, CURLOPT_STDERR, $log);", ""),
    "of the boot, given by a request": ("", "curl_setopt($GLOBALS['curl'], CURLOPT_STDERR, $GLOBALS['log']);"),
    "of a request": ("", "$GLOBALS['own'] = fopen(__DIR__ . '/out', 'a'); curl_setopt($GLOBALS['curl'], CURLOPT_STDERR, $GLOBALS['own']);"),
    "closed by a request": ("curl_setopt($curl, CURLOPT_STDERR, $log);", "fclose($GLOBALS['log']);"),
    "of a request, which closes it": ("", "$own = fopen(__DIR__ . '/out', 'a'); curl_setopt($GLOBALS['curl'], CURLOPT_STDERR, $own); fclose($own);"),
}


def curl_version() -> tuple[int, ...]:
    code = "echo curl_version()['version'];"
    said = subprocess.run([PHP, "-r", code], check=True, capture_output=True, text=True).stdout
    return tuple(int(part) for part in said.split(".")[:2])


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_what_curl_says_at_the_end_of_a_request(rewind: str, log: str, directory: pathlib.Path) -> None:
    """In the log, once for each request; nowhere where the log is closed, or libcurl is a silent one."""
    boot, request = LOGS[log]
    modes.write(directory, JAR.replace("BOOT", boot).replace("REQUEST", request))
    out = directory / "out"
    says = "close" not in log and curl_version() < (8, 17)

    def play(server) -> int:
        out.write_text("")
        out.chmod(0o666)
        for visit in range(1, 6):
            assert modes.get(server) == "served"
            assert not says or wait_until(lambda visit=visit: out.read_text().count("failed to save cookies") == visit), out.read_text()
        return out.read_text().count("failed to save cookies")

    with modes.php_fpm(directory, workers=1) as fpm:
        expected = play(fpm)
    assert expected == (5 if says else 0)
    with modes.hayate(directory, rewind, "shared", workers=1, args=("--rewind-verify", "1")) as server:
        assert play(server) == expected
        application = modes.application(server)
        assert application["restarts"] == {} and application["fallback"] is None, server.log()[-3000:]


PROBE = """
$held = PROBE;
while (hayate_handle_request(function () { global $held; echo 'worker'; })) {
}
"""


def declined(directory: pathlib.Path, script: str, args: list[str]) -> dict:
    """With a front controller the application is served by it."""
    modes.write(directory, script)
    (directory / "index.php").write_text("<?php echo 'classic';")
    with Hayate(directory, worker=directory / "worker.php", workers=1, ini=modes.INI, args=args) as server:
        application = modes.application(server)
        assert modes.get(server) == ("worker" if application["fallback"] is None else "classic")
    return application


@pytest.mark.parametrize("rewind", ["on", "fork"])
@pytest.mark.parametrize(("probe", "names"), [("probe_resource()", '"probe pages"'), ("new ProbePages", "class ProbePages, of the extension probe")])
def test_what_nobody_knows_is_not_rewound(probe: str, names: str, rewind: str, directory: pathlib.Path, tmp_path: pathlib.Path) -> None:
    extension = ["--ini", f"extension={build(tmp_path, 'probe', 'never')}", "--rewind", rewind]
    application = declined(directory, PROBE.replace("PROBE", probe), extension)
    assert application["mode"] == "classic" and names in application["fallback"]["why"], application
    assert "close or unset it before hayate_handle_request()" in application["fallback"]["why"]


def test_what_is_closed_again_is_nobodys_business(directory: pathlib.Path, tmp_path: pathlib.Path) -> None:
    extension = ["--ini", f"extension={build(tmp_path, 'probe', 'never')}"]
    script = PROBE.replace("PROBE", "[probe_resource(), new ProbePages]; $held = null; gc_collect_cycles()")
    assert declined(directory, script, extension)["fallback"] is None


def test_without_a_front_controller_it_says_why(directory: pathlib.Path, tmp_path: pathlib.Path) -> None:
    modes.write(directory, PROBE.replace("PROBE", "probe_resource()"))
    args = ["--ini", f"extension={build(tmp_path, 'probe', 'never')}"]
    with pytest.raises(ServerError, match="probe pages"), Hayate(directory, worker=directory / "worker.php", workers=1, args=args):
        pass


@pytest.mark.skipif(not php_extensions.is_there("dba"), reason="the extension dba is not installed (HAYATE_EXTENSIONS)")
@pytest.mark.parametrize("handler", ["db4", "qdbm", "lmdb", "flatfile", "inifile", "cdb"])
def test_dba(handler: str, directory: pathlib.Path) -> None:
    """One that is only read is rewound; what writes keeps pages, or where its file ends, in memory."""
    directory.chmod(0o777)
    kind = "cdb_make" if handler == "cdb" else handler
    extension = [line for line in php_extensions.settings(["dba"]).splitlines() for line in ("--ini", line)]
    make = f"$d = dba_open(__DIR__ . '/db', 'n', '{kind}'); dba_insert('k', 'value', $d); dba_close($d);"
    loop = "while (hayate_handle_request(function () { global $d; echo dba_fetch('k', $d) ? 'worker' : 'nothing'; })) {}"
    if handler not in handlers():
        pytest.skip(f"dba without {handler}")
    assert declined(directory, f"{make} $d = dba_open(__DIR__ . '/db', 'r', '{handler}'); {loop}", extension)["fallback"] is None
    # Closed, though the variable is there: an object since 8.4.
    closed = f"{make} while (hayate_handle_request(function () {{ echo 'worker'; }})) {{}}"
    assert declined(directory, closed, extension)["fallback"] is None
    mode = "n" if handler == "cdb" else "w"
    application = declined(directory, f"{make} $d = dba_open(__DIR__ . '/db', '{mode}', '{kind}'); {loop}", extension)
    why = application["fallback"]["why"]
    assert application["mode"] == "classic" and ('"dba"' in why or "of the extension dba" in why), application


def handlers() -> list[str]:
    """Those that this dba has."""
    command = [f"php{PHP_VERSION}", *(f"-d{line}" for line in php_extensions.settings(["dba"]).splitlines())]
    return subprocess.run([*command, "-r", "echo implode(' ', dba_handlers());"], check=True, capture_output=True, text=True).stdout.split()
