"""`hayate-lab load` over TLS and over HTTP/2, against nginx."""

from __future__ import annotations

import contextlib
import http.server
import pathlib
import re
import ssl
import threading
from collections.abc import Iterator

import pytest

from generator import Nginx, generator, load, run
from lib.tls import self_signed


@pytest.fixture(scope="module")
def nginx() -> Iterator[Nginx]:
    generator()
    with Nginx() as server:
        yield server


def test_tls_with_a_certificate_that_is_checked(nginx: Nginx) -> None:
    report = load(f"{nginx.tls}/protocol", "-n", "200", "-c", "4", "--ca-file", str(nginx.authority),
                  "--expect-match", "^HTTP/1.1 localhost:[0-9]+ ")  # fmt: skip
    assert report["total"]["ok"] == 200
    assert report["protocol"]["http"] == "HTTP/1.1" and report["protocol"]["tls"].startswith("TLSv1_3, TLS13_")
    health = report["health"]
    assert health["connections_opened"] == health["handshakes"] == 4
    # What goes over the wire: each answer is a record of its own.
    assert report["total"]["bytes_received"] > 200 * 150


@pytest.mark.parametrize("client", ["lean", "hyper"])
def test_both_clients_read_a_large_answer_over_tls(nginx: Nginx, client: str) -> None:
    report = load(f"{nginx.tls}/file", "-n", "50", "-c", "2", "--insecure", "--client", client,
                  "--expect-match", "^(0123456789){1000}$")  # fmt: skip
    assert report["total"]["ok"] == 50


def test_a_certificate_that_nobody_vouches_for_is_refused_and_the_reason_is_said(nginx: Nginx) -> None:
    report = load(nginx.tls, "-n", "5", "-c", "1", status=1)
    assert report["total"]["errors"] == {"tls": 5}
    assert "UnknownIssuer" in report["warnings"][0]
    # The right authority for the wrong host.
    wrong = nginx.tls.replace("localhost", "127.0.0.1")
    report = load(wrong, "-n", "5", "-c", "1", "--ca-file", str(nginx.authority), status=1)
    assert report["total"]["errors"] == {"tls": 5} and "not valid for" in report["warnings"][0]
    assert load(wrong, "-n", "5", "-c", "1", "--insecure")["total"]["ok"] == 5


@contextlib.contextmanager
def tls_server(chain: pathlib.Path, private: pathlib.Path) -> Iterator[int]:
    """Answers whatever comes by TLS; its port."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(chain, private)

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """Handshakes that fail are what is tested."""

    with Server(("127.0.0.1", 0), Answer) as server:
        server.socket = made.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def test_a_self_signed_certificate_is_believed_if_it_is_named_itself(tmp_path: pathlib.Path) -> None:
    # As `openssl req -x509` makes it, it is an authority's (CA:TRUE); curl believes it so.
    chain, private = self_signed(tmp_path, "itself", ["localhost"])
    (tmp_path / "another").mkdir()
    other, _ = self_signed(tmp_path / "another", "itself", ["localhost"])
    expired = self_signed(tmp_path, "expired", ["localhost"], between=(-9, -2))
    with tls_server(chain, private) as port:
        few = ["-n", "3", "-c", "1", "--expect-status", "204"]
        assert load(f"https://localhost:{port}/", *few, "--ca-file", str(chain))["total"]["ok"] == 3
        report = load(f"https://127.0.0.1:{port}/", *few, "--ca-file", str(chain), status=1)
        assert report["total"]["errors"] == {"tls": 3} and "not valid for" in report["warnings"][0]
        report = load(f"https://localhost:{port}/", *few, "--ca-file", str(other), status=1)
        assert report["total"]["errors"] == {"tls": 3}
        assert "the server's certificate is an authority's (CA:TRUE)" in report["warnings"][0], report["warnings"]
        assert "CaUsedAsEndEntity" not in report["warnings"][0]
    with tls_server(*expired) as port:
        report = load(f"https://localhost:{port}/", *few, "--ca-file", str(expired[0]), status=1)
        assert report["total"]["errors"] == {"tls": 3} and "expired" in report["warnings"][0]


def test_sessions_are_resumed_unless_each_handshake_has_to_be_a_full_one(nginx: Nginx) -> None:
    each = ["-n", "40", "-c", "2", "--insecure", "--no-keepalive", "--generator-threads", "1"]
    resumed = load(f"{nginx.tls}/", *each)["health"]
    assert resumed["handshakes"] == resumed["connections_opened"] == 40
    # The first two have nothing to resume; tickets come with the first answer.
    assert resumed["handshakes_resumed"] >= 30
    full = load(f"{nginx.tls}/", *each, "--no-resumption")["health"]
    assert (full["handshakes"], full["handshakes_resumed"]) == (40, 0)
    # The server's own word for it.
    fresh = load(f"{nginx.tls}/protocol", *each, "--no-resumption", "--expect-match", r" \.$")
    assert fresh["total"]["ok"] == 40
    text, _ = run(nginx.tls, *each, "--no-resumption")
    assert re.search(r"^TLS +40 handshakes, [\d.,]+/s, 0 of them resumed a session; TLSv1_3, TLS13_", text, re.M)


@pytest.mark.parametrize("over", ["tls", "h2c"])
def test_http2_in_a_closed_loop(nginx: Nginx, over: str) -> None:
    url = getattr(nginx, over)
    report = load(f"{url}/protocol", "-n", "2000", "-c", "2", "--http2", "--streams", "50", "--insecure",
                  "--expect-match", "^HTTP/2.0 (localhost|127.0.0.1):[0-9]+ ")  # fmt: skip
    assert (report["total"]["ok"], report["total"]["errors"]) == (2000, {})
    assert report["health"]["connections_opened"] == report["health"]["connections_max"] == 2
    assert (report["protocol"]["http"], report["protocol"]["streams"]) == ("HTTP/2", 50)
    assert report["total"]["bytes_received"] > 2000 * 30 and report["total"]["bytes_sent"] > 2000 * 10


def test_http2_bodies_go_both_ways(nginx: Nginx) -> None:
    report = load(f"{nginx.tls}/file", "-n", "100", "-c", "1", "--http2", "--streams", "10", "--insecure",
                  "--expect-match", "^(0123456789){1000}$")  # fmt: skip
    assert report["total"]["ok"] == 100 and report["total"]["bytes_received"] > 100 * 10_000
    echo = [f"{nginx.tls}/echo", "-n", "20", "-c", "1", "--http2", "--streams", "4", "--insecure"]
    assert load(*echo, "--body", "a=1&b=2", "-H", "X-Test: yes", "--expect-match", "^POST yes 7$")["total"]["ok"] == 20
    assert load(*echo, "-X", "DELETE", "--expect-match", "^DELETE  $")["total"]["ok"] == 20


def test_http2_by_a_schedule_fills_a_connection_before_it_opens_another(nginx: Nginx) -> None:
    report = load(f"{nginx.tls}/", "--schedule", "const(300, 1s)", "-c", "4", "--generator-threads", "1", "--http2",
                  "--streams", "100", "--insecure")  # fmt: skip
    assert report["total"]["ok"] == report["plan"]["shots"] == 300
    assert report["total"]["service_ms"]["count"] == 300
    # 100 of 300 under way would be a third of a second of silence.
    assert report["health"]["connections_opened"] <= 3


def test_http2_virtual_users_share_connections(nginx: Nginx) -> None:
    report = load(nginx.h2c, "--threads", "20", "--loops", "10", "--http2", "--streams", "10", "--generator-threads", "1")
    assert (report["total"]["ok"], report["health"]["connections_opened"]) == (200, 2)


def test_a_connection_that_the_server_gives_up_costs_no_request(nginx: Nginx) -> None:
    # nginx says GOAWAY after so many requests; what it did not look at is sent again on a new connection.
    report = load(nginx.few, "-n", "4000", "-c", "1", "--http2", "--streams", "20")
    assert (report["total"]["ok"], report["total"]["errors"]) == (4000, {})
    assert report["health"]["connections_opened"] >= 4


def test_without_keepalive_each_stream_has_a_connection_of_its_own(nginx: Nginx) -> None:
    report = load(f"{nginx.tls}/", "-n", "30", "-c", "3", "--http2", "--no-keepalive", "--insecure")
    assert report["total"]["ok"] == report["health"]["connections_opened"] == 30


def test_a_server_without_http2_is_named(nginx: Nginx) -> None:
    report = load(nginx.tls1, "-n", "3", "-c", "1", "--http2", "--insecure", status=1)
    assert report["total"]["errors"] == {"tls": 3}
    assert any("HTTP/2" in warning for warning in report["warnings"])
    # HTTP/2 with prior knowledge to who speaks HTTP/1.1 only: it answers something that is none.
    report = load(nginx.url, "-n", "3", "-c", "1", "--http2", "--timeout", "5s", status=1)
    assert report["total"]["ok"] == 0 and "timeout" not in report["total"]["errors"]
    assert any("prior knowledge" in warning for warning in report["warnings"])
    assert load(nginx.h2c, "-n", "3", "-c", "1", "--http2")["warnings"] == []


def test_what_makes_no_sense_is_refused(nginx: Nginx) -> None:
    for arguments, reason in [
        (["--streams", "3"], "--http2"),
        (["--http2", "--streams", "3", "--no-keepalive"], "nothing for further streams"),
        (["--ca-file", "/nowhere.pem", "--http2"], "/nowhere.pem"),
        (["--http2", "--client", "hyper"], "--client"),
    ]:
        _, errors = run(nginx.tls, *arguments, status=2)
        assert reason in errors, errors
