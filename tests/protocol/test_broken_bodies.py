"""A body that is passed on as it comes, and fails once the answer has begun, passes for a whole one with nobody: the script is told as of a
client that has left, and the client's answer is cut off."""

from __future__ import annotations

import contextlib
import http.client
import socket
import struct
import time

import pytest
import requests

from lib.process import wait_until
from lib.servers import GENERIC_WORKER, Hayate

from . import h2

#: Answers while it reads, and writes down what it makes of the end.
UPLOAD = """<?php
ignore_user_abort(isset($_GET['stays']));
while (ob_get_level()) { ob_end_flush(); }
$log = __DIR__ . '/' . $_GET['log'];
echo "begun\\n"; flush();
file_put_contents("$log.reads", '');
$in = fopen('php://input', 'rb');
$n = 0;
while (($piece = fread($in, 8192)) !== false && $piece !== '') {
    $n += strlen($piece);
}
file_put_contents("$log.end", connection_aborted() ? "aborted after $n" : "all $n");
echo "stored $n\\n";
file_put_contents("$log.more", '');
"""
#: Reads nothing: its answer is whole before the body is.
EARLY = """<?php
while (ob_get_level()) { ob_end_flush(); }
header('Content-Length: 5'); echo 'early'; flush();
"""
#: Says all of its answer at once, none of which has a body of its own, and only then reads.
QUIET = """<?php
ignore_user_abort(true);
while (ob_get_level()) { ob_end_flush(); }
$log = __DIR__ . '/' . $_GET['log'];
if ($_GET['says'] === 'file') { header('X-Sendfile: ' . __DIR__ . '/sent.txt'); } else { http_response_code((int) $_GET['says']); }
echo ' '; flush();
file_put_contents("$log.reads", '');
$n = 0;
$in = fopen('php://input', 'rb');
while (($piece = fread($in, 8192)) !== false && $piece !== '') {
    $n += strlen($piece);
}
echo str_repeat('x', 1 << 20);
file_put_contents("$log.end", connection_aborted() ? "aborted after $n" : "all $n");
"""
LIMIT = 40_000


@pytest.fixture(scope="module", params=["classic", "worker"])
def server(request, tmp_path_factory):
    yield from serving(request.param, tmp_path_factory, "request_buffering = false\n")


@pytest.fixture(scope="module", params=["classic", "worker"])
def gathering(request, tmp_path_factory):
    """As it is where nobody asks for anything else."""
    yield from serving(request.param, tmp_path_factory, "")


def serving(mode: str, tmp_path_factory, more: str):
    root = tmp_path_factory.mktemp("broken") / "site"
    root.mkdir()
    root.chmod(0o777)
    (root / "upload.php").write_text(UPLOAD)
    (root / "early.php").write_text(EARLY)
    (root / "quiet.php").write_text(QUIET)
    (root / "sent.txt").write_text("sent")
    (root / "ok.php").write_text("<?php echo 'ok';")
    worker = f'worker = "{GENERIC_WORKER}"\n' if mode == "worker" else ""
    config = f'http2_prior_knowledge = true\n[limits]\nbody_size = "{LIMIT}"\n[[app]]\nroot = "{root}"\nworkers = 2\nsendfile_roots = ["{root}"]\n{more}{worker}'
    with Hayate(config=config) as server:
        server.site = root
        yield server


def begun(server: Hayate, head: bytes, first: bytes, name: str, path: str = "/upload.php", more: str = "") -> tuple[socket.socket, bytes]:
    """A PUT whose script has begun to answer and reads, and what has come of the answer."""
    client = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    client.sendall(f"PUT {path}?log={name}{more} HTTP/1.1\r\nHost: a\r\n".encode() + head + b"\r\n" + first)
    answer = b""
    while b"begun" not in answer:
        piece = client.recv(65536)
        assert piece, answer
        answer += piece
    reads(server, name)
    return client, answer


def reads(server: Hayate, name: str) -> None:
    """The script has done what it does before it reads: whoever has left by then has left at its flush()."""
    assert wait_until((server.site / f"{name}.reads").exists), server.log_tail()


def rest(client: socket.socket) -> bytes:
    """What still comes until the connection is over, however it ends."""
    data = b""
    try:
        while piece := client.recv(65536):
            data += piece
    except ConnectionResetError:
        pass
    client.close()
    return data


def never_whole(server: Hayate, name: str) -> None:
    """The script was told that it has not got all, and could note what it has."""
    end = server.site / f"{name}.end"
    assert wait_until(lambda: end.exists() and end.read_text()), server.log_tail()
    assert end.read_text().startswith("aborted after "), end.read_text()
    time.sleep(0.2)
    assert not (server.site / f"{name}.more").exists(), "it went on after what it said last"


def test_what_a_script_leaves_unread_is_not_waited_for(server) -> None:
    """In classic mode PHP reads the rest of a body when it has ended a request: workers were held by clients that had their page to come."""
    with contextlib.ExitStack() as clients:
        # One after the other: only half of the workers are for bodies that have not come.
        for _ in range(4):
            client = clients.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=20))
            client.sendall(b"PUT /ok.php HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % LIMIT + b"x" * (LIMIT - 1))
            answer = b""
            while b"ok" not in answer.partition(b"\r\n\r\n")[2]:
                piece = client.recv(65536)
                assert piece, answer
                answer += piece
            assert answer.startswith(b"HTTP/1.1 200")


#: Writes down what it has got of a body, whatever the client does meanwhile.
SEEN = """<?php
ignore_user_abort(true);
if (isset($_GET['begun'])) { while (ob_get_level()) { ob_end_flush(); } echo 'begun'; flush(); }
file_put_contents(__DIR__ . '/' . $_GET['log'] . '.end', strlen(file_get_contents('php://input')) . ' ' . ($_POST['end'] ?? 'none'));
"""


@pytest.mark.parametrize("begun", [False, True], ids=["quiet", "begun"])
@pytest.mark.parametrize("method", ["POST", "PUT"])
@pytest.mark.parametrize("mode", ["classic", "worker"])
def test_a_client_that_has_sent_all_and_leaves_has_no_part_of_it_stored(tmp_path, mode, method, begun) -> None:
    """Its form was stored without its end, with `amount=1` of `amount=1000` perhaps."""
    (tmp_path / "seen.php").write_text(SEEN)
    worker = f'worker = "{GENERIC_WORKER}"\n' if mode == "worker" else ""
    body = b"a=" + b"x" * (4 << 20) + b"&end=there"
    with Hayate(config=f'[[app]]\nroot = "{tmp_path}"\nworkers = 2\n{worker}') as server:
        tmp_path.chmod(0o777)
        for i in range(20):
            client = socket.create_connection(("127.0.0.1", server.port), timeout=60)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(
                f"{method} /seen.php?log={i}{'&begun=1' * begun} HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-www-form-urlencoded\r\n"
                f"Content-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            if begun:
                assert client.recv(65536)
            client.close()
        status = server.status
        assert wait_until(lambda: all(worker["state"] == "idle" for worker in status()["apps"][0]["workers"]) and not status()["apps"][0]["queue"])
        ends = [end.read_text() for end in tmp_path.glob("*.end")]
        assert set(ends) <= {f"{len(body)} {'there' if method == 'POST' else 'none'}"}, ends
        assert len(ends) == 20 or not begun, ends


#: Goes on for ever, and reads nothing.
ENDLESS = """<?php
while (ob_get_level()) { ob_end_flush(); }
register_shutdown_function(fn () => file_put_contents(__DIR__ . '/' . $_GET['log'] . '.end', 'over'));
http_response_code((int) $_GET['says']);
for ($i = 0; $i < 6000; $i++) { echo str_repeat('x', 1000); flush(); usleep(10000); }
"""


@pytest.mark.parametrize("mode", ["classic", "worker"])
def test_a_script_that_takes_nothing_of_a_body_is_told_that_its_client_has_left(tmp_path, mode) -> None:
    """It would hold its worker for as long as it likes to write."""
    (tmp_path / "endless.php").write_text(ENDLESS)
    worker = f'worker = "{GENERIC_WORKER}"\n' if mode == "worker" else ""
    with Hayate(config=f'[[app]]\nroot = "{tmp_path}"\nworkers = 3\n{worker}') as server:
        tmp_path.chmod(0o777)
        for method, says in (("PUT", 200), ("PUT", 204), ("HEAD", 200)):
            client = socket.create_connection(("127.0.0.1", server.port), timeout=60)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            head = f"{method} /endless.php?log={method}{says}&says={says} HTTP/1.1\r\nHost: a\r\nContent-Length: {1 << 20}\r\n\r\n"
            client.sendall(head.encode() + b"x" * (1 << 20))
            assert client.recv(65536)
            client.close()
        ends = [tmp_path / f"{name}.end" for name in ("PUT200", "PUT204", "HEAD200")]
        assert wait_until(lambda: all(end.exists() for end in ends)), [end.name for end in ends if end.exists()]


@pytest.mark.parametrize("size", [100, 30_000, LIMIT])
def test_after_the_end_of_the_answer_there_is_no_more_of_a_body(gathering, size) -> None:
    """How much of it was there was chance. php-fpm gives nothing either."""
    (gathering.site / "finish.php").write_text(
        "<?php echo 'fin'; fastcgi_finish_request();"
        "file_put_contents(__DIR__ . '/' . $_GET['log'] . '.end', strlen(file_get_contents('php://input')) . ' ' . connection_aborted());"
    )
    for i in range(5):
        end = gathering.site / f"finish{size}{i}.end"
        assert requests.put(f"{gathering.url}/finish.php?log=finish{size}{i}", data=b"x" * size, timeout=60).text == "fin"
        assert wait_until(lambda end=end: end.exists() and end.read_text()) and end.read_text() == "0 0"


def test_an_answer_that_leaves_a_large_body_says_that_the_connection_ends(gathering) -> None:
    """It ended without a word, and what the client sent next on it was lost."""
    for size, ends in ((10_000, None), (LIMIT, None)):
        assert requests.post(f"{gathering.url}/missing.txt", data=b"x" * size, timeout=60).headers.get("connection") == ends
    with socket.create_connection(("127.0.0.1", gathering.port), timeout=60) as client:
        client.sendall(b"POST /missing.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n" + b"x" * 300_000)
        assert b"connection: close" in rest(client).lower()


@pytest.mark.plain("bytes of HTTP/1; HTTP/2 ends a stream, not the connection")
def test_a_large_body_in_chunks_that_is_left_costs_nothing_of_the_connection(gathering) -> None:
    """How long it is nobody knows before its end, so the answer said nothing, and the connection ended."""
    chunk = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"
    with socket.create_connection(("127.0.0.1", gathering.port), timeout=60) as client:
        for _ in range(3):
            client.sendall(b"POST /missing.txt HTTP/1.1\r\nHost: a\r\n" + CHUNKED + b"\r\n" + chunk * 32 + b"0\r\n\r\n")
            answer = http.client.HTTPResponse(client)
            answer.begin()
            assert answer.status == 404 and answer.getheader("connection") is None
            answer.read()


CHUNKED = b"Transfer-Encoding: chunked\r\n"
BROKEN = {
    "too_large": b"%x\r\n" % (2 * LIMIT) + b"x" * (2 * LIMIT) + b"\r\n0\r\n\r\n",
    "framing": b"zz\r\n",
}


@pytest.mark.parametrize("how", BROKEN)
def test_chunks(server, how) -> None:
    client, answer = begun(server, CHUNKED, b"5\r\nhello\r\n", how)
    client.sendall(BROKEN[how] + b"GET /ok.php HTTP/1.1\r\nHost: a\r\n\r\n")
    answer += rest(client)
    assert answer.startswith(b"HTTP/1.1 200") and b"0\r\n\r\n" not in answer and b"stored" not in answer and answer.count(b"HTTP/1.1") == 1
    never_whole(server, how)
    assert wait_until(lambda: "PUT /upload.php: the answer had begun, and was cut off" in server.log()), server.log_tail()


@pytest.mark.parametrize("how", ["closed", "half_closed"])
def test_a_length_that_is_not_reached(server, how) -> None:
    client, answer = begun(server, b"Content-Length: 39000\r\n", b"x" * 1000, how)
    if how == "closed":
        client.close()
    else:
        client.shutdown(socket.SHUT_WR)
        answer += rest(client)
        assert b"0\r\n\r\n" not in answer and b"stored" not in answer
    never_whole(server, how)


def test_who_ignores_it_is_told(server) -> None:
    client, _ = begun(server, b"Content-Length: 39000\r\n", b"hello", "stays", more="&stays=1")
    client.shutdown(socket.SHUT_WR)
    assert b"stored" not in rest(client)
    end = server.site / "stays.end"
    assert wait_until(end.exists) and end.read_text() == "aborted after 5"
    assert wait_until((server.site / "stays.more").exists)


#: A part of a file that comes in several: it is stored before it is noted how much there is.
PART = """<?php
$file = __DIR__ . '/' . $_GET['file'];
file_put_contents($file, fopen('php://input', 'rb'), FILE_APPEND);
clearstatcache();
file_put_contents("$file.offset", (string) filesize($file));
http_response_code(204);
"""


def test_what_came_of_a_body_that_breaks_off_can_be_noted(server) -> None:
    """As under php-fpm behind a proxy that passes bodies on: an upload that is resumed begins where its file ends."""
    (server.site / "part.php").write_text(PART)
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        head = b"PATCH /part.php?file=resumed HTTP/1.1\r\nHost: a\r\nContent-Length: 39000\r\n\r\n"
        client.sendall(head + b"x" * 20_001)
        time.sleep(0.5)
    offset = server.site / "resumed.offset"
    assert wait_until(lambda: offset.exists() and offset.read_text())
    assert offset.read_text() == "20001" == str((server.site / "resumed").stat().st_size)


def test_over_http2(server) -> None:
    raw = h2.Raw(socket.create_connection(("127.0.0.1", server.port), timeout=60))
    raw.request(1, "/upload.php?log=h2", method="PUT", end=False)
    raw.send(h2.frame(h2.DATA, 0, 1, b"hello"))
    while (came := raw.receive()) is not None and (came[0] != h2.DATA or b"begun" not in came[3]):
        pass
    assert came is not None
    reads(server, "h2")
    for _ in range(5):
        raw.send(h2.frame(h2.DATA, 0, 1, b"x" * 10_000))
    ended = False
    while (came := raw.receive()) is not None:
        kind, flags, stream, _ = came
        if stream == 1 and kind in (h2.DATA, h2.HEADERS):
            ended |= bool(flags & h2.END_STREAM)
            assert not ended, "the answer passes for whole"
        if stream == 1 and kind == h2.RST_STREAM:
            break
    assert came is not None, "the connection goes on"
    raw.sock.close()
    never_whole(server, "h2")


def test_a_whole_body_is_one(server) -> None:
    client, answer = begun(server, b"Connection: close\r\n" + CHUNKED, b"5\r\nhello\r\n", "whole")
    client.sendall(b"5\r\nworld\r\n0\r\n\r\n")
    answer += rest(client)
    assert b"stored 10\n" in answer and answer.endswith(b"0\r\n\r\n")
    assert (server.site / "whole.end").read_text() == "all 10"


def test_an_early_answer_is_whole(server) -> None:
    """Who never reads the body has answered all the same."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(b"PUT /early.php HTTP/1.1\r\nHost: a\r\n" + CHUNKED + b"\r\n5\r\nhello\r\n")
        answer = b""
        while not answer.endswith(b"early"):
            piece = client.recv(65536)
            assert piece, answer
            answer += piece
        assert answer.startswith(b"HTTP/1.1 200")
        # Its rest is thrown away.
        client.sendall(b"5\r\nworld\r\n0\r\n\r\nGET /ok.php HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert rest(client).endswith(b"ok")


def test_expect_continue(server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(b"PUT /upload.php?log=expects HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: 100-continue\r\n" + CHUNKED + b"\r\n")
        answer = b""
        while b"100 Continue\r\n\r\n" not in answer:
            piece = client.recv(65536)
            assert piece, answer
            answer += piece
        client.sendall(b"5\r\nhello\r\n0\r\n\r\n")
        answer += rest(client)
        # Whether the beginning and the end go out together is a matter of time.
        assert b"stored 5\n" in answer and answer.endswith((b"0\r\n\r\n", b"stored 5\n"))


@pytest.mark.parametrize("says", ["200", "204", "304", "file"])
def test_a_script_that_answers_without_a_body_still_reads_all_of_its_requests(server, says):
    name = f"quiet-{says}"
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(f"PUT /quiet.php?log={name}&says={says} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {LIMIT}\r\n\r\n".encode())
        client.sendall(b"a" * 1000)
        reads(server, name)
        time.sleep(0.2)
        client.sendall(b"a" * (LIMIT - 1000))
        answer = b""
        while piece := client.recv(65536):
            answer += piece
    assert answer.startswith(f"HTTP/1.1 {'200' if says == 'file' else says} ".encode()), answer[:200]
    assert says != "file" or answer.endswith(b"\r\n\r\nsent"), answer[:200]
    end = server.site / f"{name}.end"
    assert wait_until(lambda: end.exists() and end.read_text()), server.log_tail()
    assert end.read_text() == f"all {LIMIT}"


@pytest.mark.parametrize("says", ["204", "file"])
def test_one_that_answers_without_a_body_hears_that_its_requests_broke_off(server, says):
    name = f"quiet-broken-{says}"
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(f"PUT /quiet.php?log={name}&says={says} HTTP/1.1\r\nHost: a\r\nContent-Length: {LIMIT}\r\n\r\n".encode() + b"a" * 1000)
        reads(server, name)
    never_whole(server, name)


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "GET"])
@pytest.mark.parametrize("breaks", ["leaves", "garbage", "too much"])
def test_a_script_meets_no_part_of_a_body_unless_it_is_asked_for(gathering, method, breaks):
    """As behind nginx: half a file is stored by nobody."""
    name = f"{method}-{breaks}"
    with socket.create_connection(("127.0.0.1", gathering.port), timeout=60) as client:
        client.sendall(f"{method} /upload.php?log={name} HTTP/1.1\r\nHost: a\r\n".encode() + CHUNKED + b"\r\n8ca0\r\n" + b"a" * 36_000 + b"\r\n")
        time.sleep(0.5)
        assert not (gathering.site / f"{name}.reads").exists()
        if breaks == "garbage":
            client.sendall(b"no chunk\r\n")
        elif breaks == "too much":
            client.sendall(b"2000\r\n" + b"a" * 8192 + b"\r\n")
        if breaks != "leaves":
            assert client.recv(65536).startswith(b"HTTP/1.1 4")
    assert requests.get(f"{gathering.url}/ok.php", timeout=60).text == "ok"
    assert not (gathering.site / f"{name}.reads").exists()


def test_one_that_is_whole_is_read_as_a_whole(gathering):
    answer = requests.put(f"{gathering.url}/upload.php?log=whole", data=iter([b"a" * 30_000, b"b" * 9_000]), timeout=60)
    assert answer.text == "begun\nstored 39000\n"
    assert (gathering.site / "whole.end").read_text() == "all 39000"
