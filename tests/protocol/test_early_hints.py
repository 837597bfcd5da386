"""103 Early Hints from PHP, in every mode: to HTTP/2 always, to HTTP/1.1 by a key, to HTTP/1.0 never."""

from __future__ import annotations

import pathlib
import socket
from collections.abc import Iterator

import pytest

from lib.client import encode, exchange
from lib.servers import GENERIC_WORKER, REWIND_WORKER, Hayate

from .h2 import DATA, END_STREAM, HEADERS, Raw

CSS, JS = "</app.css>; rel=preload; as=style", "</app.js>; rel=preload; as=script"

SCRIPTS = {
    "hints.php": f"""<?php $said = [hayate_early_hints('{CSS}'), hayate_early_hints(['{JS}', '{CSS}']), hayate_early_hints([])];
        header('X-Own: yes'); echo json_encode($said);""",
    # The page waits until the client has its hints.
    "order.php": f"""<?php hayate_early_hints('{CSS}'); while (!file_exists($_GET['file'])) {{ usleep(1000); }} echo 'page';""",
    # What Symfony's Response::sendHeaders(103) and send() do, from 6.3 on; Debian 12 has an older one.
    "symfony.php": f"""<?php header('Content-Type: text/html', true, 200); header('Link: {CSS}', false, 200); $said = headers_send(103);
        header('Link: {JS}', false, 200); header('HTTP/1.0 200 OK', true, 200); echo $said;""",
    "send.php": "<?php header('X-A: b'); echo headers_send(404), json_encode(headers_sent()), headers_send(103), 'x';",
    "late.php": f"<?php ob_end_flush(); echo 'x'; flush(); echo json_encode(hayate_early_hints('{CSS}')), headers_send(103);",
    "many.php": f"<?php $n = 0; while (hayate_early_hints('{CSS}')) {{ $n++; }} echo $n;",
    "large.php": "<?php echo json_encode(hayate_early_hints(str_repeat('x', 20000))), json_encode(hayate_early_hints(str_repeat('x', 9000)));",
    "wrong.php": """<?php foreach ([["a\\r\\nX-Injected: yes"], [[]], [7]] as $links) {
        try { hayate_early_hints($links); echo 'sent'; } catch (Error $e) { echo get_class($e), ' '; } }
        foreach ([99, 1000] as $n) { try { headers_send($n); echo 'sent'; } catch (Error $e) { echo get_class($e), ' '; } }
        echo headers_send(100), headers_send(101);""",
    "hop.php": """<?php header('Connection: close'); header('Transfer-Encoding: chunked'); header('Content-Length: 5'); header('Link: <a>');
        headers_send(103); header_remove('Content-Length'); echo 'hello';""",
    "body.php": f"<?php hayate_early_hints('{CSS}'); echo strlen(file_get_contents('php://input'));",
    "status.php": "<?php header('HTTP/1.1 103 Early Hints'); header('Link: <a>'); echo 'x';",
    "crash.php": f"<?php hayate_early_hints('{CSS}'); posix_kill(getmypid(), 9);",
    "plain.php": "<?php echo 'plain';",
}

by_prior_knowledge = pytest.mark.plain("it speaks HTTP/2 by prior knowledge, without TLS")
MODES = {"classic": (None, ()), "worker": (GENERIC_WORKER, ("--rewind", "off")), "rewind": (REWIND_WORKER, ("--rewind", "on"))}


@pytest.fixture(scope="module", params=MODES)
def server(hayate_command, tmp_path_factory, request) -> Iterator[Hayate]:
    directory = tmp_path_factory.mktemp("hints")
    directory.chmod(0o777)
    for name, text in SCRIPTS.items():
        (directory / name).write_text(text)
    worker, args = MODES[request.param]
    config = f'http2_prior_knowledge = true\nearly_hints_http1 = true\n[[app]]\nroot = "{directory}"\n'
    with Hayate(config=config, workers=2, worker=worker, args=args) as running:
        running.directory = directory
        yield running


def get(server, path: str, version: str = "HTTP/1.1", method: str = "GET", body: bytes = b"", headers=()):
    fields = [("Host", "a"), ("Connection", "close"), *headers]
    return exchange(("127.0.0.1", server.port), encode(method, path, fields, body, version))


def links(interim: list[tuple[int, list[tuple[str, str]]]]) -> list[tuple[int, list[str]]]:
    return [(status, [value for name, value in headers if name.lower() == "link"]) for status, headers in interim]


def h2(server, path: str) -> tuple[list[tuple[int, list[tuple[str, str]]]], int, bytes]:
    """(informational answers, status, body)"""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as sock:
        raw = Raw(sock)
        raw.request(1, path)
        heads, body, flags = [], b"", 0
        while not flags & END_STREAM:
            kind, flags, _, payload = raw.until(lambda kind, flags, stream, payload: kind in (HEADERS, DATA) and stream == 1)
            if kind == HEADERS:
                fields = raw.decoder.decode(payload)
                heads.append((int(dict(fields)[":status"]), fields))
            else:
                body += payload
        return heads[:-1], heads[-1][0], body


@by_prior_knowledge
def test_hints_come_before_the_answer(server) -> None:
    answer = get(server, "/hints.php")
    assert links(answer.interim) == [(103, [CSS]), (103, [JS, CSS])]
    assert (answer.status, answer.body, answer.complete) == (200, b"[true,true,false]", True)
    assert answer.header("x-own") == "yes" and answer.header("link") is None
    interim, status, body = h2(server, "/hints.php")
    assert links(interim) == [(103, [CSS]), (103, [JS, CSS])] and (status, body) == (200, b"[true,true,false]")


@by_prior_knowledge
def test_hints_come_before_the_script_goes_on(server, tmp_path) -> None:
    tmp_path.chmod(0o777)
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as sock:
        sock.sendall(f"GET /order.php?file={tmp_path}/1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        received = b""
        while b"\r\n\r\n" not in received:
            received += sock.recv(4096)
        assert received == f"HTTP/1.1 103 Early Hints\r\nLink: {CSS}\r\n\r\n".encode()
        (tmp_path / "1").touch()
        while chunk := sock.recv(4096):
            received += chunk
        assert received.endswith(b"page")
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as sock:
        raw = Raw(sock)
        raw.request(1, f"/order.php?file={tmp_path}/2")
        assert raw.status(1) == "103"
        (tmp_path / "2").touch()
        assert raw.status(1) == "200"


@by_prior_knowledge
def test_as_symfony_sends_them(server) -> None:
    answer = get(server, "/symfony.php")
    assert links(answer.interim) == [(103, [CSS])] and answer.body == b"1"
    assert answer.status == 200 and answer.values("link") == [CSS, JS], "what was sent early stays set"
    interim, status, body = h2(server, "/symfony.php")
    assert links(interim) == [(103, [CSS])] and (status, body) == (200, b"1")


def test_headers_send_with_the_answers_own_status(server) -> None:
    answer = get(server, "/send.php")
    assert answer.status == 404 and answer.header("x-a") == "b" and answer.interim == []
    assert answer.body == b"0true3x"


def test_too_late_too_many_too_large_and_wrong(server) -> None:
    assert get(server, "/late.php").body == b"xfalse3"
    many = get(server, "/many.php")
    assert many.body == b"16" and len(many.interim) == 16
    large = get(server, "/large.php")
    assert large.body == b"falsetrue" and len(large.interim) == 1
    wrong = get(server, "/wrong.php")
    assert wrong.body == b"ValueError TypeError TypeError ValueError ValueError 33" and wrong.interim == []


def test_what_frames_a_message_is_not_in_a_hint(server) -> None:
    answer = get(server, "/hop.php")
    assert [name.lower() for _, headers in answer.interim for name, _ in headers if not name.lower().startswith("x-powered")] == ["link"]
    assert answer.body == b"hello" and answer.complete


def test_a_client_that_waits_for_leave_to_send_its_body(server) -> None:
    """100 Continue is the server's, 103 the script's."""
    body = b"x" * 1000
    for method in ("POST", "PUT"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as sock:
            sock.sendall(f"{method} /body.php HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 1000\r\n\r\n".encode())
            received = b""
            while b" 100 Continue\r\n\r\n" not in received:
                received += sock.recv(4096)
            sock.sendall(body)
            while chunk := sock.recv(4096):
                received += chunk
        assert received.count(b"HTTP/1.1 100 ") == 1 and received.count(b"HTTP/1.1 103 ") == 1, received
        assert received.count(b"HTTP/1.1 200 ") == 1 and received.endswith(b"1000"), received


def test_a_status_line_is_not_a_hint(server) -> None:
    """A script has one answer; php-fpm behind nginx leaves the client with a 103 and nothing after it."""
    answer = get(server, "/status.php")
    assert (answer.status, answer.interim) == (500, [])


def test_a_worker_that_dies_after_a_hint(server) -> None:
    answer = get(server, "/crash.php")
    assert answer.status == 502 and links(answer.interim) == [(103, [CSS])]
    assert get(server, "/plain.php").body == b"plain"


def test_http_1_0_gets_none(server) -> None:
    answer = get(server, "/hints.php", version="HTTP/1.0")
    assert answer.interim == [] and answer.status == 200 and answer.body == b"[true,true,false]"


@by_prior_knowledge
def test_http_1_1_gets_none_unless_asked_for(hayate_command, tmp_path: pathlib.Path) -> None:
    for name, text in SCRIPTS.items():
        (tmp_path / name).write_text(text)
    tmp_path.chmod(0o755)
    with Hayate(config=f'http2_prior_knowledge = true\n[[app]]\nroot = "{tmp_path}"\n', workers=1) as server:
        assert get(server, "/hints.php").interim == []
        assert len(h2(server, "/hints.php")[0]) == 2
