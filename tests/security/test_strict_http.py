"""Strict parsing, and what must never be served. Raw sockets: a library would repair what is being tested."""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import socket
import time
from collections.abc import Iterator

import pytest
import requests

from lib import over, site
from lib.client import Response, encode, exchange
from lib.servers import PHP_VERSION, Hayate


@pytest.fixture(scope="module")
def server(hayate_command, tmp_path_factory) -> Iterator[Hayate]:
    root = site.make(tmp_path_factory.mktemp("strict"))
    with Hayate(root, workers=1) as hayate:
        yield hayate


def get(server: Hayate, path: str) -> Response:
    """A path as it is, over HTTP/2 as well."""
    return exchange(("127.0.0.1", server.port), encode("GET", path, [("Host", "a"), ("Connection", "close")]))


def send(server: Hayate, data: bytes, *, wait: float = 5.0) -> bytes:
    """All bytes that come back until the server closes; fails when it keeps the connection open."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=wait) as s:
        s.sendall(data)
        received = b""
        while chunk := s.recv(65536):
            received += chunk
        return received


MALFORMED = {
    "bare LF after the request line": b"GET /ok.php HTTP/1.1\nHost: a\r\n\r\n",
    "bare LF after a header": b"GET /ok.php HTTP/1.1\r\nHost: a\nX: y\r\n\r\n",
    "bare LF at the end of the head": b"GET /ok.php HTTP/1.1\r\nHost: a\r\n\n",
    "bare CR in a value": b"GET /ok.php HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n",
    "obs-fold": b"GET /ok.php HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
    "space before the colon": b"GET /ok.php HTTP/1.1\r\nHost: a\r\nX : b\r\n\r\n",
    "no colon": b"GET /ok.php HTTP/1.1\r\nHost: a\r\nnonsense\r\n\r\n",
    "empty name": b"GET /ok.php HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n",
    "NUL in a value": b"GET /ok.php HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n",
    "no host": b"GET /ok.php HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /ok.php HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "length and chunked": b"POST /echo.php HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked and length": b"POST /echo.php HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths that differ": b"POST /echo.php HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "a list of lengths": b"POST /echo.php HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 6\r\n\r\nhello!",
    "a signed length": b"POST /echo.php HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello",
    "a negative length": b"POST /echo.php HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\nhello",
    "a huge length": b"POST /echo.php HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n",
    "chunked twice": b"POST /echo.php HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "a coding after chunked": b"POST /echo.php HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "chunked with a tab before it": b"POST /echo.php HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "chunked in HTTP/1.0": b"POST /echo.php HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a chunk size that is none": b"POST /echo.php HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n\r\n",
    "a chunk size before a form feed": b"POST /echo.php HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\x0c\r\nhello\r\n0\r\n\r\n",
    "a chunk size with a sign": b"POST /echo.php HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n",
    "a chunk size that overflows": b"POST /echo.php HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n\r\n",
    "a chunk longer than said": b"POST /echo.php HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n0\r\n\r\n",
    "bare LF in the chunk size line": b"POST /echo.php HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
    "a version that is none": b"GET /ok.php HTTP/9.9\r\nHost: a\r\n\r\n",
    "a target with a NUL": b"GET /ok.php%00.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    "two Authorization": b"GET /ok.php HTTP/1.1\r\nHost: a\r\nAuthorization: Basic YTpi\r\nauthorization: Basic YzpkCg==\r\nConnection: close\r\n\r\n",
    "a broken percent sequence": b"GET /ok%zz.php HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_requests_answer_400_and_close(server, case) -> None:
    answer = send(server, MALFORMED[case])
    status = answer.split(b"\r\n", 1)[0]
    assert status.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400", b"HTTP/1.1 501", b"HTTP/1.1 505")), answer[:300]
    # One answer only: nothing after the refused request was taken for another one.
    assert answer.count(b"HTTP/1.") == 1, answer


def test_a_smuggled_request_is_not_answered(server) -> None:
    answer = send(
        server,
        b"POST /ok.php HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"0\r\n\r\nGET /pid.php HTTP/1.1\r\nHost: a\r\n\r\n",
    )
    assert answer.count(b"HTTP/1.1") == 1 and b" 400 " in answer.split(b"\r\n")[0]


def test_what_came_before_a_malformed_request_is_answered(server) -> None:
    answer = send(server, b"GET /ok.php?one HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n")
    assert b"ok one" in answer and answer.index(b"ok one") < answer.index(b" 400 ")


def test_limits(server) -> None:
    long = b"a" * 70000
    assert b" 414 " in send(server, b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\nHost: a\r\n\r\n").split(b"\r\n")[0]
    assert b" 431 " in send(server, b"GET / HTTP/1.1\r\nHost: a\r\nX: " + long + b"\r\n\r\n").split(b"\r\n")[0]
    many = b"".join(b"X-%d: y\r\n" % i for i in range(300))
    assert b" 431 " in send(server, b"GET / HTTP/1.1\r\nHost: a\r\n" + many + b"\r\n").split(b"\r\n")[0]


NEVER_SERVED = [
    "/../secret.txt",
    "/%2e%2e/secret.txt",
    "/..%2fsecret.txt",
    "/sub/../../secret.txt",
    "/sub/%2e%2e/%2e%2e/secret.txt",
    "//../secret.txt",
    "/.%00./secret.txt",
    "/.env",
    "/%2eenv",
    "/.git/config",
    "/.hidden.php",
    "/sub/.env",
    "/inc.phtml",
    "/old.php~",
    "/ok.php~",
    "/ok.php.bak",
]


@pytest.mark.parametrize("path", NEVER_SERVED)
def test_never_served(server, path) -> None:
    answer = get(server, path)
    assert over.is_refused(answer) or answer.status in (403, 404), answer
    for leak in (b"secret", b"SECRET", b"[core]", b"hidden", b"<?php", b"'source'"):
        assert leak not in answer.body


@pytest.mark.parametrize("path", ["/uploads/evil.jpg/x.php", "/uploads/evil.jpg/.php", "/uploads/evil.jpg%00.php"])
def test_uploads_are_not_executed(server, path) -> None:
    answer = get(server, path)
    assert b"executed" not in answer.body.replace(b"echo 'executed'", b"")
    assert over.is_refused(answer) or answer.status in (403, 404), answer


def test_well_known_is_served(server) -> None:
    assert requests.get(server.url + "/.well-known/acme", timeout=60).text == "token"


def test_php_source_is_never_sent_whatever_the_method(server) -> None:
    for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        for path in ("/ok.php", "/OK.PHP", "/ok.php/", "/ok.php%20", "/ok.php."):
            assert "<?php" not in requests.request(method, server.url + path, timeout=60).text


@pytest.fixture(scope="module")
def sender(hayate_command, tmp_path_factory) -> Iterator[Hayate]:
    """One that acts on X-Sendfile and X-Accel-Redirect."""
    root = site.make(tmp_path_factory.mktemp("sender"))
    with Hayate(config=f'[[app]]\nroot = "{root}"\nsendfile_roots = []\n', workers=1) as hayate:
        yield hayate


def test_sendfile_stays_inside(sender) -> None:
    good = requests.get(sender.url + "/sendfile.php", timeout=60)
    assert good.text.startswith("plain text") and good.headers["Content-Type"].startswith("text/x-own")
    assert "X-Sendfile" not in good.headers
    accel = requests.get(sender.url + "/accel.php", timeout=60)
    assert accel.text.startswith("plain text") and "X-Accel-Redirect" not in accel.headers
    part = requests.get(sender.url + "/accel.php", headers={"Range": "bytes=6-9"}, timeout=60)
    assert (part.status_code, part.text) == (206, "text")
    for path in ("/sendfile_out.php", "/accel_out.php"):
        bad = requests.get(sender.url + path, timeout=60)
        assert bad.status_code in (403, 404, 500, 502) and "root:" not in bad.text and "secret" not in bad.text


def test_what_hayate_does_not_act_on_is_for_the_proxy_in_front(server, sender) -> None:
    assert requests.get(server.url + "/accel.php", timeout=60).headers["X-Accel-Redirect"] == "/plain.txt"
    assert requests.get(server.url + "/sendfile.php", timeout=60).headers["X-Sendfile"].endswith("/plain.txt")
    for each in (server, sender):
        headers = requests.get(each.url + "/accel_hints.php", timeout=60).headers
        assert (headers["X-Accel-Buffering"], headers["X-Accel-Expires"]) == ("no", "10")


def test_header_injection_from_php_is_refused(server) -> None:
    answer = requests.get(server.url + "/inject.php", timeout=60)
    assert "X-Injected" not in answer.headers


def test_error_pages_tell_nothing(server, tmp_path) -> None:
    for path in ("/nowhere", "/nowhere.php", "/.env"):
        page = requests.get(server.url + path, timeout=60)
        assert page.status_code == 404
        assert str(server.root) not in page.text and "0.1.0" not in page.text and PHP_VERSION not in page.text
        assert "0." not in page.headers.get("Server", "")


def test_forwarded_headers_of_strangers_are_ignored(server) -> None:
    scheme, other = ("https", "http") if server.speaks_tls else ("http", "https")
    headers = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": other, "Forwarded": "for=203.0.113.9"}
    seen = requests.get(server.url + "/server.php", headers=headers, timeout=60).json()
    assert seen["REMOTE_ADDR"] == "127.0.0.1" and ("HTTPS" in seen) == server.speaks_tls and seen["REQUEST_SCHEME"] == scheme


def test_of_what_a_trusted_proxy_passes_on_only_its_own_words_are_believed(hayate_command, tmp_path) -> None:
    root = site.make(tmp_path)
    every = [f"--trusted-headers={name}" for name in ("x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "forwarded")]
    with Hayate(root, workers=1, args=["--trusted-proxies", "127.0.0.1", *every]) as hayate:

        def seen(**headers: str) -> tuple[str, str, str]:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            answer = requests.get(hayate.url + "/server.php", headers=named, timeout=60).json()
            return answer["REMOTE_ADDR"], answer["REQUEST_SCHEME"], answer["SERVER_NAME"]

        own = "https" if hayate.speaks_tls else "http"
        plain = ("203.0.113.9", "https", "shop.test")
        assert seen(X_Forwarded_For="203.0.113.9", X_Forwarded_Proto="https", X_Forwarded_Host="shop.test") == plain
        assert seen(Forwarded='for="203.0.113.9:4711";proto=https;host=shop.test') == plain
        assert seen(X_Forwarded_For="127.0.0.1, 2001:db8::7")[0] == "2001:db8::7"
        # The visitor's own Forwarded, which a proxy that writes X-Forwarded-For passes on.
        assert seen(Forwarded="for=10.0.0.1;proto=https", X_Forwarded_For="203.0.113.9")[:2] == ("203.0.113.9", own)
        # The visitor's own part of a list.
        assert seen(Forwarded="for=10.0.0.1;host=evil.test;proto=https, for=203.0.113.9")[:2] == ("203.0.113.9", own)
        assert seen(X_Forwarded_For="10.0.0.1, unknown")[0] == "127.0.0.1"


def test_httpoxy_and_underscores(server) -> None:
    headers = {"Proxy": "http://evil", "X_Under": "1", "X-Fine": "2"}
    seen = requests.get(server.url + "/server.php", headers=headers, timeout=60).json()
    assert "HTTP_PROXY" not in seen and "HTTP_X_UNDER" not in seen and seen["HTTP_X_FINE"] == "2"


def test_workers_have_none_of_the_fronts_descriptors(server) -> None:
    lines = requests.get(server.url + "/fds.php", timeout=60).text.splitlines()
    sockets = [line for line in lines if "socket:" in line]
    assert sockets == [], lines


def test_no_new_privileges(server) -> None:
    assert "NoNewPrivs:\t1" in requests.get(server.url + "/privileges.php", timeout=60).text


def test_a_configured_user_is_dropped_to(hayate_command, tmp_path) -> None:
    import os
    import pwd

    if os.geteuid() != 0:
        pytest.skip("changing the user needs root")
    root = site.make(tmp_path)
    for parent in [tmp_path, *tmp_path.parents]:
        if parent != pathlib.Path("/") and parent.owner() == "root":
            parent.chmod(parent.stat().st_mode | 0o055)
    hayate = Hayate(root, args=["--user", "www-data", "--group", "www-data"])
    # The pid file is removed by the user that was dropped to, so its directory has to be that user's, as under systemd.
    shutil.chown(hayate.dir, "www-data", "www-data")
    with hayate:
        text = requests.get(hayate.url + "/privileges.php", timeout=60).text
        assert text.endswith(str(pwd.getpwnam("www-data").pw_uid))


def test_slow_heads_are_cut_off_and_do_not_hold_up_others(hayate_command, tmp_path) -> None:
    root = site.make(tmp_path)
    config = f'[limits]\nheader_timeout = "1s"\nidle_timeout = "2s"\n[[app]]\nroot = "{root}"\n'
    with Hayate(config=config, workers=1) as hayate:
        slow = [socket.create_connection(("127.0.0.1", hayate.port)) for _ in range(200)]
        for s in slow:
            s.sendall(b"GET /ok.php HTTP/1.1\r\nHost: a\r\nX-Slow: ")
        started = time.monotonic()
        for i in range(50):
            assert requests.get(f"{hayate.url}/ok.php?{i}", timeout=10).text == f"ok {i}"
        # Without the settings above it would take 15 and 75 seconds.
        deadline = started + 14
        for s in slow:
            s.settimeout(max(0.1, deadline - time.monotonic()))
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):  # newer TLS libraries say so instead of the end
                while s.recv(4096):
                    pass
            s.close()
        idle = socket.create_connection(("127.0.0.1", hayate.port))
        idle.settimeout(60)
        assert idle.recv(1) == b""
