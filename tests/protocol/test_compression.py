"""Compressed answers: of PHP and of files, by HTTP/1.1 and HTTP/2, decoded by curl and Python; beside nginx, where both compress."""

from __future__ import annotations

import gzip
import pathlib
import random
import socket
import subprocess
import zlib
from collections.abc import Iterator

import pytest

from lib import over
from lib.client import Response, encode, exchange
from lib.process import wait_until
from lib.servers import Hayate, NginxFpm

CODINGS = ["zstd", "br", "gzip"]
PROTOCOLS = {"http1": "--http1.1", "http2": over.curl_http2()}
TEXT = "".join(f"<li>The quick brown fox jumps over the lazy dog, {n} times</li>\n" for n in range(12_000)).encode()

SCRIPTS = {
    "page.php": "<?php header('ETag: \"tag\"'); header('Vary: Cookie'); echo file_get_contents(__DIR__ . '/page.txt');",
    # Larger than the shared memory holds: it goes out while the script runs.
    "stream.php": "<?php foreach (str_split(file_get_contents(__DIR__ . '/large.txt'), 5000) as $part) { echo $part; }",
    "events.php": """<?php header('Content-Type: text/event-stream'); while (ob_get_level()) { ob_end_flush(); }
        for ($n = 0; $n < 3; $n++) { echo "data: $n\\n\\n"; flush(); while (!file_exists("$_GET[dir]/$n")) { usleep(1000); } }""",
    "small.php": "<?php echo 'hello';",
    "picture.php": "<?php header('Content-Type: image/png'); readfile(__DIR__ . '/page.txt');",
    "aside.php": "<?php header('Content-Encoding: identity'); readfile(__DIR__ . '/page.txt');",
    "no-transform.php": "<?php header('Cache-Control: public, no-transform'); readfile(__DIR__ . '/page.txt');",
    "encoded.php": "<?php header('Content-Encoding: gzip'); echo gzencode(file_get_contents(__DIR__ . '/page.txt'));",
    "zlib.php": "<?php ini_set('zlib.output_compression', '1'); readfile(__DIR__ . '/page.txt');",
    "handler.php": "<?php ob_start('ob_gzhandler'); readfile(__DIR__ . '/page.txt');",
    "length.php": "<?php $t = file_get_contents(__DIR__ . '/page.txt'); header('Content-Length: ' . strlen($t)); echo $t;",
    "short.php": """<?php header('Content-Length: 400000'); while (ob_get_level()) { ob_end_flush(); }
        for ($n = 0; $n < 3; $n++) { echo str_repeat('too short ', 10000); flush(); }""",
    "missing.php": "<?php http_response_code(404); readfile(__DIR__ . '/page.txt');",
    "nothing.php": "<?php http_response_code(204);",
    "unchanged.php": "<?php http_response_code(304); header('ETag: \"tag\"');",
    "noise.php": """<?php ignore_user_abort(true); header('Content-Type: text/plain'); while (ob_get_level()) { ob_end_flush(); }
        for ($n = 0; $n < 2000 && !connection_aborted(); $n++) { echo base64_encode(random_bytes(30000)); }
        file_put_contents($_GET['file'], connection_aborted() ? 'aborted' : 'all');""",
}


def make(directory: pathlib.Path) -> pathlib.Path:
    root = directory / "site"
    root.mkdir()
    for name, text in SCRIPTS.items():
        (root / name).write_text(text)
    (root / "page.txt").write_bytes(TEXT[:40_000])
    (root / "large.txt").write_bytes(TEXT)
    (root / "tiny.txt").write_bytes(b"tiny")
    (root / "noise.txt").write_bytes(random.Random(7).randbytes(4000))
    (root / "packed.txt").write_bytes(TEXT[:40_000])
    (root / "packed.txt.gz").write_bytes(gzip.compress(TEXT[:40_000]))
    zst = subprocess.run(["zstd", "-qc"], input=TEXT[:40_000], capture_output=True, check=True).stdout
    (root / "packed.txt.zst").write_bytes(zst)
    for path in [directory, *directory.rglob("*")]:
        path.chmod(0o777 if path.is_dir() else 0o644)
    return root


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> pathlib.Path:
    return make(tmp_path_factory.mktemp("compression"))


@pytest.fixture(scope="module")
def server(hayate_command, root) -> Iterator[Hayate]:
    with Hayate(config=f'http2_prior_knowledge = true\n[[app]]\nroot = "{root}"\n', workers=3) as hayate:
        yield hayate


def ask(server, path: str, *headers: tuple[str, str], method: str = "GET", version: str = "HTTP/1.1") -> Response:
    fields = [("Host", "localhost"), ("Connection", "close"), *headers]
    return exchange(("127.0.0.1", server.port), encode(method, path, fields, version=version))


def plain(server, path: str, *headers: tuple[str, str], **more) -> Response:
    """The same for a client that takes gzip; the answer has to have been left as it is."""
    answer = ask(server, path, ("Accept-Encoding", "gzip"), *headers, **more)
    assert answer.header("content-encoding") is None and answer.complete, (path, answer.headers)
    return answer


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("path", ["page.php", "stream.php", "length.php", "missing.php", "page.txt", "large.txt"])
def test_every_byte_comes_back(server, root, tmp_path, path, coding, protocol) -> None:
    want = TEXT if path in ("stream.php", "large.txt") else TEXT[:40_000]
    heads, body = tmp_path / "head", tmp_path / "body"
    command = ["curl", "-sS", "--max-time", "60", PROTOCOLS[protocol], "--compressed", "-H", f"Accept-Encoding: {coding}"]
    command += ["-D", heads, "-o", body, "-w", "%{size_download}", f"{server.url}/{path}"]
    size = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    head = heads.read_text().lower()
    assert f"content-encoding: {coding}\n" in head and "accept-encoding" in head.partition("vary:")[2].partition("\n")[0], head
    # What is there as a whole has a length, that of the encoded body; nothing else says one.
    if "content-length:" in head:
        assert f"content-length: {size}\n" in head and len(want) == 40_000, head
    assert body.read_bytes() == want
    assert size < len(want) / 4, size


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("coding", CODINGS)
def test_what_is_flushed_is_seen_before_the_script_goes_on(server, tmp_path, coding, protocol) -> None:
    """The script waits after each event until the client has seen it."""
    tmp_path.chmod(0o777)
    command = ["curl", "-sSN", "--max-time", "60", PROTOCOLS[protocol], "--compressed", "-H", f"Accept-Encoding: {coding}"]
    with subprocess.Popen([*command, f"{server.url}/events.php?dir={tmp_path}"], stdout=subprocess.PIPE) as curl:
        for n in range(3):
            assert curl.stdout.readline() + curl.stdout.readline() == b"data: %d\n\n" % n
            (tmp_path / str(n)).touch()
        assert curl.stdout.read() == b"" and curl.wait(20) == 0


def test_headers_of_an_encoded_answer(server) -> None:
    page = ask(server, "/page.php", ("Accept-Encoding", "gzip"))
    assert page.header("etag") == 'W/"tag"' and page.header("vary") == "Cookie, Accept-Encoding"
    assert page.framing == "length" and gzip.decompress(page.body) == TEXT[:40_000]
    file = ask(server, "/large.txt", ("Accept-Encoding", "gzip"))
    tag = file.header("etag")
    assert tag.startswith('W/"') and file.header("accept-ranges") is None and file.header("vary") == "Accept-Encoding"
    assert file.framing in ("chunked", "stream") and gzip.decompress(file.body) == TEXT
    # Who accepts nothing is told that others get something else.
    without = ask(server, "/large.txt")
    assert without.header("etag") == tag[2:] and without.header("vary") == "Accept-Encoding"
    assert without.framing == "length" and without.body == TEXT


def test_a_client_that_has_it_is_told_so(server) -> None:
    tag = ask(server, "/large.txt", ("Accept-Encoding", "gzip")).header("etag")
    again = ask(server, "/large.txt", ("Accept-Encoding", "gzip"), ("If-None-Match", tag))
    assert (again.status, again.header("etag"), again.body) == (304, tag, b"")
    # With the fields of the answer that it stands for (RFC 9110, 15.4.5), whatever this client accepts.
    for path, varies in [("/large.txt", "Accept-Encoding"), ("/tiny.txt", None)]:
        whole = ask(server, path)
        same = ask(server, path, ("If-None-Match", whole.header("etag")))
        assert (same.status, same.header("vary"), whole.header("vary")) == (304, varies, varies)
        assert same.header("content-type") is None
    # If-Match compares strongly (RFC 9110, 13.1.1), If-None-Match weakly.
    strong = tag.removeprefix("W/")
    for matched, status in [(strong, 200), (tag, 412), (f'"x", {strong}', 200), ("*", 200), ('"x"', 412)]:
        assert ask(server, "/large.txt", ("If-Match", matched)).status == status, matched
        assert ask(server, "/large.txt", ("If-None-Match", matched)).status == (200 if matched == '"x"' else 304), matched
    unchanged = ask(server, "/unchanged.php", ("Accept-Encoding", "gzip"), ("If-None-Match", 'W/"tag"'))
    assert (unchanged.status, unchanged.header("etag"), unchanged.header("content-encoding")) == (304, 'W/"tag"', None)


def test_parts_are_of_the_plain_file(server) -> None:
    part = plain(server, "/large.txt", ("Range", "bytes=10-19"))
    assert part.status == 206 and part.body == TEXT[10:20]
    # A part has the fields of the whole (RFC 9110, 15.3.7).
    for path in ("/large.txt", "/tiny.txt", "/packed.txt", "/noise.txt"):
        for accepted in ([], [("Accept-Encoding", "gzip")]):
            part, whole = ask(server, path, ("Range", "bytes=0-1"), *accepted), ask(server, path, *accepted)
            assert (part.status, whole.status) == (206, 200)
            assert part.header("vary") == whole.header("vary"), (path, accepted)
    # A part of what was encoded cannot be had: the client gets all of it anew.
    tag = ask(server, "/large.txt", ("Accept-Encoding", "gzip")).header("etag")
    whole = ask(server, "/large.txt", ("Accept-Encoding", "gzip"), ("Range", "bytes=10-19"), ("If-Range", tag))
    assert whole.status == 200 and gzip.decompress(whole.body) == TEXT


def test_what_stays_as_it_is(server) -> None:
    for path in ("/small.php", "/tiny.txt", "/nothing.php", "/nowhere"):
        assert plain(server, path).header("vary") is None, path
    for path in ("/picture.php", "/aside.php", "/no-transform.php"):
        answer = plain(server, path)
        assert answer.body == TEXT[:40_000] and answer.header("vary") is None, path
    for accept in ("identity", "gzip;q=0", "*;q=0", "deflate", "", "gzip;q=0.5, identity"):
        answer = ask(server, "/page.php", ("Accept-Encoding", accept))
        assert answer.header("content-encoding") is None and answer.body == TEXT[:40_000], accept
    # HTTP/1.0 cannot tell the end of what has no length.
    assert plain(server, "/page.php", version="HTTP/1.0").body == TEXT[:40_000]
    small = ask(server, "/small.php", ("Accept-Encoding", "gzip, identity;q=0"))
    assert small.body == b"hello", "encoded it would be larger"


def test_what_php_has_encoded(server) -> None:
    for path in ("/encoded.php", "/zlib.php", "/handler.php"):
        answer = ask(server, path, ("Accept-Encoding", "gzip"))
        assert answer.header("content-encoding") == "gzip", path
        assert gzip.decompress(answer.body) == TEXT[:40_000], path


def test_files_that_are_packed_already(server, root) -> None:
    for accept, ending in (("gzip, br", "gz"), ("zstd;q=0.5, gzip;q=0.4", "zst"), ("gzip, zstd", "zst"), ("gzip;q=1, zstd;q=0.9", "gz")):
        answer = ask(server, "/packed.txt", ("Accept-Encoding", accept))
        assert answer.body == (root / f"packed.txt.{ending}").read_bytes(), accept
        assert answer.framing == "length" and answer.header("etag").startswith('"'), accept
    # One that is not there is made.
    answer = ask(server, "/packed.txt", ("Accept-Encoding", "br"))
    assert answer.header("content-encoding") == "br" and answer.header("vary") == "Accept-Encoding"
    assert plain(server, "/packed.txt.gz").body == (root / "packed.txt.gz").read_bytes()
    # One that comes later is seen, within a second.
    (root / "later.txt").write_bytes(TEXT[:4_000])
    assert ask(server, "/later.txt", ("Accept-Encoding", "gzip")).header("vary") == "Accept-Encoding"
    (root / "later.txt.gz").write_bytes(gzip.compress(b"packed"))
    want = (root / "later.txt.gz").read_bytes()
    assert wait_until(lambda: ask(server, "/later.txt", ("Accept-Encoding", "gzip")).body == want, 20)


def test_head_says_what_get_would(server) -> None:
    get, head = (ask(server, "/large.txt", ("Accept-Encoding", "gzip"), method=method) for method in ("GET", "HEAD"))
    without = ("date", "transfer-encoding")
    assert head.body == b"" and head.header("content-length") is None
    fields = [sorted((k.lower(), v) for k, v in answer.headers if k.lower() not in without) for answer in (get, head)]
    assert fields[0] == fields[1]
    # A small one is encoded only if that makes it smaller: HEAD says what became of it.
    for path in ("/page.txt", "/tiny.txt", "/noise.txt"):
        get, head = (ask(server, path, ("Accept-Encoding", "gzip"), method=method) for method in ("GET", "HEAD"))
        assert head.body == b"" and get.body != b""
        fields = [sorted((k.lower(), v) for k, v in answer.headers if k.lower() != "date") for answer in (get, head)]
        assert fields[0] == fields[1], path
    assert get.header("content-encoding") is None


def test_a_script_that_sends_less_than_it_says(server) -> None:
    """The client must see that something is missing, although it was told no length."""
    answer = ask(server, "/short.php", ("Accept-Encoding", "gzip"))
    assert answer.header("content-encoding") == "gzip" and not answer.complete
    if over.protocol == over.H2:
        return  # The reset of a stream overtakes what is queued on it.
    assert zlib.decompressobj(wbits=31).decompress(answer.body).startswith(b"too short ")


def memory(pid: int) -> int:
    """Bytes that a process has in memory."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmRSS"))


@pytest.mark.parametrize("coding", CODINGS)
def test_a_client_that_does_not_read(server, tmp_path, coding) -> None:
    """80 MB that nothing makes small: the script waits for the client, memory stays flat, and its going is noticed."""
    tmp_path.chmod(0o777)
    front, done = server.front, tmp_path / "done"
    ask(server, "/large.txt", ("Accept-Encoding", coding))
    before = memory(front)
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(f"GET /noise.php?file={done} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {coding}\r\n\r\n".encode())
        received = b""
        while len(received) < 300_000:
            received += (piece := sock.recv(65536))
            assert piece, received[:1000]
        assert f"content-encoding: {coding}".encode() in received.partition(b"\r\n\r\n")[0].lower()
        # Others are served meanwhile, while it is being encoded for the first.
        for _ in range(5):
            assert ask(server, "/small.php").body == b"hello"
        assert memory(front) - before < 16 << 20
        assert not done.exists()
    assert wait_until(done.exists, 60) and wait_until(lambda: done.read_text() == "aborted")


def test_an_application_may_be_left_out(hayate_command, root) -> None:
    with Hayate(config=f'[[app]]\nroot = "{root}"\ncompress = false\n', workers=1) as server:
        answer = plain(server, "/page.php")
        assert answer.header("vary") == "Cookie" and answer.body == TEXT[:40_000]
        assert ask(server, "/packed.txt", ("Accept-Encoding", "gzip")).header("content-encoding") == "gzip"
    with Hayate(config=f'[compression]\nenabled = false\n[[app]]\nroot = "{root}"\n', workers=1) as server:
        plain(server, "/large.txt")


#: As nginx and Hayate do it, with the same settings. nginx knows one media type for each, whole.
NGINX = """
    gzip on; gzip_vary on; gzip_min_length 1024; gzip_comp_level 5; gzip_proxied any;
    gzip_types text/plain text/event-stream application/json;
"""
CONFIG = """
[compression]
codings = ["gzip"]
types = ["text/html", "text/plain", "text/event-stream", "application/json"]
[[app]]
root = "{root}"
"""


def test_beside_nginx(hayate_command, root) -> None:
    """The same requests, played to both: what differs is listed here, with its reason."""
    with NginxFpm(root, extra=NGINX) as nginx, Hayate(config=CONFIG.format(root=root), workers=2) as hayate:
        for path in ("page.php", "stream.php", "missing.php", "page.txt", "large.txt", "tiny.txt", "picture.php", "encoded.php", "length.php"):
            for accept in ("gzip", "gzip, deflate, br", "gzip;q=0.5", "gzip;q=0", "identity", "br", "GZIP", "deflate, gzip;q=1.0", ""):
                one, other = (ask(server, f"/{path}", ("Accept-Encoding", accept)) for server in (nginx, hayate))
                where = f"{path} for {accept!r}"
                assert one.status == other.status and one.header("content-type") == other.header("content-type"), where
                assert one.header("content-encoding") == other.header("content-encoding"), where
                bodies = [gzip.decompress(a.body) if a.header("content-encoding") else a.body for a in (one, other)]
                assert bodies[0] == bodies[1], where
                weak = [(a.header("etag") or "").startswith("W/") for a in (one, other)]
                assert weak[0] == weak[1], where
                # nginx adds a field of its own; Hayate has one with both words. nginx says it of what PHP has encoded as well.
                vary = [sorted(word.strip() for value in a.values("vary") for word in value.split(",")) for a in (one, other)]
                assert vary[0] == vary[1] or path in ("encoded.php", "tiny.txt"), (where, vary)
