"""TLS from outside: which certificate, which protocol, what scripts see, and what is turned away."""

from __future__ import annotations

import json
import os
import pathlib
import re
import socket
import ssl
import subprocess
import tempfile
import threading
import time

import pytest
import requests

from lib import site
from lib.servers import ROOT, free_port
from lib.tls import TlsHayate, connect, context, get, issued, openssl, self_signed, serial

CONFIG = """
listen = [
    "127.0.0.1:{port}",
    { address = "127.0.0.1:{tls}", tls = true },
    { address = "127.0.0.1:{proxy}", proxy_protocol = true },
    { address = "127.0.0.1:{both}", tls = true, proxy_protocol = true },
    { address = "127.0.0.2:{port}", proxy_protocol = true },
]
trusted_proxies = "127.0.0.1"
%s
[limits]
handshake_timeout = "2s"

[tls]
certificates = [
    { certificate = "%s/one.pem", key = "%s/one.key" },
    { certificate = "%s/two.pem", key = "%s/two.key" },
    { certificate = "%s/rsa.pem", key = "%s/rsa.key" },
]
verify = "optional"
client_ca = "%s/clients.pem"
hsts = "180d"

[[app]]
root = "%s"
workers = 1
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> pathlib.Path:
    made = tmp_path_factory.mktemp("tls")
    self_signed(made, "one", ["a.example", "*.w.example"])
    self_signed(made, "two", ["b.example", "x.w.example"])
    self_signed(made, "rsa", ["b.example"], key=["rsa:2048"])
    # Clients, by an authority of their own.
    self_signed(made, "ca", ["authority.example"])
    issued(made, "client", [], "ca", "clientAuth")
    # One that `openssl req -x509` made, so that it is an authority (CA:TRUE), which is named itself.
    self_signed(made, "itself", ["itself.example"])
    (made / "clients.pem").write_text((made / "ca.pem").read_text() + (made / "itself.pem").read_text())
    return made


@pytest.fixture(scope="module")
def hayate(hayate_command, files):
    # Where www-data can read the site; the keys only root can (pytest's own directories are its user's alone).
    with tempfile.TemporaryDirectory() as directory:
        pathlib.Path(directory).chmod(0o755)
        root = site.make(pathlib.Path(directory))
        user = 'user = "www-data"' if os.geteuid() == 0 else ""
        ports = {name: free_port() for name in ("port", "tls", "proxy", "both")}
        with TlsHayate(CONFIG % (user, *[files] * 7, root), ports) as running:
            yield running


def test_the_name_decides_exactly_then_by_wildcard_then_the_first(hayate, files) -> None:
    loose = ssl.create_default_context()
    loose.check_hostname, loose.verify_mode = False, ssl.CERT_NONE
    one, two = (ssl.PEM_cert_to_DER_cert((files / f"{name}.pem").read_text()) for name in ("one", "two"))
    for host, expected in [
        ("a.example", one), ("A.Example", one), ("y.w.example", one), ("x.w.example", two), ("b.example", two),
        ("w.example", one), ("unknown.example", one), (None, one),
    ]:  # fmt: skip
        with connect(hayate.ports["tls"], host, loose) as tls:
            assert serial(tls) == expected, host


def test_a_client_that_knows_rsa_only_gets_the_rsa_certificate(hayate, files) -> None:
    made = context(files / "rsa.pem", version=ssl.TLSVersion.TLSv1_2)
    made.set_ciphers("ECDHE-RSA-AES128-GCM-SHA256")
    with connect(hayate.ports["tls"], "b.example", made) as tls:
        assert get(tls)[0] == 200 and tls.cipher()[0] == "ECDHE-RSA-AES128-GCM-SHA256"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_and_resumption(hayate, files, version) -> None:
    made = context(files / "one.pem", version=version)
    with connect(hayate.ports["tls"], "a.example", made) as tls:
        status, headers, body = get(tls, "/server.php")
        seen = json.loads(body)
        assert status == 200 and not tls.session_reused
        session = tls.session
    assert seen["HTTPS"] == "on" and seen["REQUEST_SCHEME"] == "https"
    assert seen["SERVER_PORT"] == str(hayate.ports["tls"]) and seen["SERVER_PROTOCOL"] == "HTTP/1.1"
    assert seen["SSL_PROTOCOL"] == {771: "TLSv1.2", 772: "TLSv1.3"}[version.value]
    assert seen["SSL_SERVER_NAME"] == "a.example" and seen["SSL_CLIENT_VERIFY"] == "NONE"
    assert seen["SSL_SESSION_REUSED"] == "." and "SSL_CLIENT_S_DN" not in seen
    assert headers["strict-transport-security"] == "max-age=15552000"
    with connect(hayate.ports["tls"], "a.example", made, session=session) as tls:
        assert tls.session_reused and json.loads(get(tls, "/server.php")[2])["SSL_SESSION_REUSED"] == "r"


def test_old_versions_are_turned_away(hayate, files) -> None:
    made = context(files / "one.pem")
    made.set_ciphers("DEFAULT@SECLEVEL=0")
    made.minimum_version = made.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError):
        connect(hayate.ports["tls"], "a.example", made)


def test_alpn_chooses_http2(hayate, files) -> None:
    with connect(hayate.ports["tls"], "a.example", context(files / "one.pem", alpn=["h2", "http/1.1"])) as tls:
        assert tls.selected_alpn_protocol() == "h2"
    with connect(hayate.ports["tls"], "a.example", context(files / "one.pem", alpn=["http/1.1"])) as tls:
        assert tls.selected_alpn_protocol() == "http/1.1" and get(tls)[0] == 200
    # `curl --http1.0` offers this and no other.
    with connect(hayate.ports["tls"], "a.example", context(files / "one.pem", alpn=["http/1.0"])) as tls:
        assert tls.selected_alpn_protocol() == "http/1.0"
        tls.sendall(b"GET /ok.php?x HTTP/1.0\r\nHost: a.example\r\n\r\n")
        answer = b"".join(iter(lambda: tls.recv(4096), b""))
        assert answer.startswith(b"HTTP/1.0 200") and answer.endswith(b"ok x")
    for offered, taken in [(["http/1.0", "http/1.1"], "http/1.1"), (["http/1.0", "h2"], "h2")]:
        with connect(hayate.ports["tls"], "a.example", context(files / "one.pem", alpn=offered)) as tls:
            assert tls.selected_alpn_protocol() == taken
    with pytest.raises(ssl.SSLError):
        connect(hayate.ports["tls"], "a.example", context(files / "one.pem", alpn=["http/0.9"]))
    # Nobody validates anything here.
    with pytest.raises(ssl.SSLError):
        connect(hayate.ports["tls"], "a.example", context(files / "one.pem", alpn=["acme-tls/1"]))
    curl = ["curl", "-sS", "--cacert", files / "one.pem", "--resolve", f"a.example:{hayate.ports['tls']}:127.0.0.1"]
    said = subprocess.run(
        [*curl, "-w", " %{http_version}", f"https://a.example:{hayate.ports['tls']}/ok.php?x"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert said.stdout == "ok x 2", said.stderr
    said = subprocess.run(
        [*curl, "--http1.0", "-w", " %{http_code}", f"https://a.example:{hayate.ports['tls']}/ok.php?x"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert said.stdout == "ok x 200", said.stderr


def test_certificates_of_clients_as_nginx_names_them(hayate, files) -> None:
    made = context(files / "one.pem")
    made.load_cert_chain(files / "client.pem", files / "client.key")
    with connect(hayate.ports["tls"], "a.example", made) as tls:
        seen = json.loads(get(tls, "/server.php")[2])
    assert seen["SSL_CLIENT_VERIFY"] == "SUCCESS" and seen["SSL_CLIENT_SERIAL"] == "A1B2"
    # nginx takes all of it from OpenSSL.
    names = openssl("x509", "-in", files / "client.pem", "-noout", "-subject", "-issuer", "-nameopt", "RFC2253")
    subject, issuer = (line.split("=", 1)[1] for line in names.splitlines())
    assert (seen["SSL_CLIENT_S_DN"], seen["SSL_CLIENT_I_DN"]) == (subject, issuer)
    digest = openssl("x509", "-in", files / "client.pem", "-noout", "-fingerprint", "-sha1").split("=")[1]
    assert seen["SSL_CLIENT_FINGERPRINT"] == digest.strip().replace(":", "").lower()
    assert seen["SSL_CLIENT_CERT"] == (files / "client.pem").read_text()
    end = openssl("x509", "-in", files / "client.pem", "-noout", "-enddate").strip()
    assert end == f"notAfter={seen['SSL_CLIENT_V_END']}"
    # One that nobody vouches for.
    made = context(files / "one.pem")
    made.load_cert_chain(files / "two.pem", files / "two.key")
    with pytest.raises((ssl.SSLError, OSError)):
        with connect(hayate.ports["tls"], "a.example", made) as tls:
            get(tls)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_self_signed_certificate_that_is_named_itself_is_taken(hayate, files, tmp_path, version) -> None:
    made = context(files / "one.pem", version=version)
    made.load_cert_chain(files / "itself.pem", files / "itself.key")
    with connect(hayate.ports["tls"], "a.example", made) as tls:
        seen = json.loads(get(tls, "/server.php")[2])
    assert seen["SSL_CLIENT_VERIFY"] == "SUCCESS" and seen["SSL_CLIENT_S_DN"] == "CN=itself"
    # Another one of that name is nobody's.
    self_signed(tmp_path, "itself", ["itself.example"])
    made = context(files / "one.pem", version=version)
    made.load_cert_chain(tmp_path / "itself.pem", tmp_path / "itself.key")
    with pytest.raises(ssl.SSLError), connect(hayate.ports["tls"], "a.example", made) as tls:
        get(tls)


CERTIFICATES = """
listen = ["127.0.0.1:{port}", { address = "127.0.0.1:{tls}", tls = true }]
%s

[tls]
certificates = [{ certificate = "%s/one.pem", key = "%s/one.key" }]
verify = "%s"
client_ca = "%s/ca.pem"

[[app]]
root = "%s"
workers = 1
"""


@pytest.mark.parametrize("verify", ["optional", "required"])
def test_a_client_whose_certificate_is_refused_reads_why(hayate_command, files, tmp_path, verify) -> None:
    # By TLS 1.3 a client has agreed before the server has looked at its certificate, and sends its request at once.
    self_signed(tmp_path, "others", ["authority.example"])
    issued(tmp_path, "stranger", [], "others", "clientAuth")
    made = context(files / "one.pem", version=ssl.TLSVersion.TLSv1_3)
    if verify == "optional":
        made.load_cert_chain(tmp_path / "stranger.pem", tmp_path / "stranger.key")
    with tempfile.TemporaryDirectory() as directory:
        pathlib.Path(directory).chmod(0o755)
        root = site.make(pathlib.Path(directory))
        user = 'user = "www-data"' if os.geteuid() == 0 else ""
        config = CERTIFICATES % (user, files, files, verify, files, root)
        with TlsHayate(config, {"port": free_port(), "tls": free_port()}) as running:
            for _ in range(5):
                with connect(running.ports["tls"], "a.example", made) as tls:
                    for part in (b"POST /ok.php HTTP/1.1\r\nHost: a.example\r\nContent-Length: 9\r\n\r\n", b"and", b"more", b"no"):
                        tls.sendall(part)
                        time.sleep(0.05)
                    with pytest.raises(ssl.SSLError) as refused:
                        tls.recv(1)
                expected = "unknown ca" if verify == "optional" else "certificate required"
                assert expected in str(refused.value).lower().replace("_", " ")
            # Who goes on sending is listened to for a moment, and no longer.
            tls = connect(running.ports["tls"], "a.example", made)
            began = time.monotonic()
            with tls, pytest.raises(OSError):
                while time.monotonic() - began < 20:
                    tls.sendall(b"x")
                    time.sleep(0.05)
            assert time.monotonic() - began < 5
            wait_for(lambda: "its certificate was refused" in running.log())
            line = next(line for line in running.log().splitlines() if "its certificate was refused" in line)
            assert "INFO" in line and ("UnknownIssuer" if verify == "optional" else "no certificate") in line, line


def test_headers_do_not_pass_for_variables_of_tls(hayate, files) -> None:
    with connect(hayate.ports["tls"], "a.example", context(files / "one.pem")) as tls:
        tls.sendall(b"GET /server.php HTTP/1.1\r\nHost: a.example\r\nSSL-Client-Verify: SUCCESS\r\nSSL_CLIENT_VERIFY: SUCCESS\r\nConnection: close\r\n\r\n")
        text = b""
        while piece := tls.recv(65536):
            text += piece
    seen = json.loads(text.split(b"\r\n\r\n", 1)[1])
    assert seen["SSL_CLIENT_VERIFY"] == "NONE" and seen["HTTP_SSL_CLIENT_VERIFY"] == "SUCCESS"


def test_http_is_sent_to_https(hayate) -> None:
    port, tls = hayate.ports["port"], hayate.ports["tls"]
    def ask(method: str, target: str, **headers: str) -> requests.Response:
        url = f"http://127.0.0.1:{port}{target}"
        return requests.request(method, url, headers=headers, allow_redirects=False, timeout=60)
    answer = ask("GET", "/a%20b?x=1&y", Host="a.example")
    assert (answer.status_code, answer.headers["location"]) == (301, f"https://a.example:{tls}/a%20b?x=1&y")
    assert "strict-transport-security" not in answer.headers
    assert ask("POST", "/").status_code == 308
    # A trusted proxy has spoken TLS itself.
    answer = ask("GET", "/ok.php?x", **{"X-Forwarded-Proto": "https"})
    assert (answer.status_code, answer.text) == (200, "ok x")
    assert ask("GET", "/.well-known/acme-challenge/abc", Host="a.example").status_code == 301
    for wrong in ("a.example\r\nX: y", "a/b", "@", "[::1"):
        with socket.create_connection(("127.0.0.1", port), timeout=60) as tcp:
            tcp.sendall(f"GET / HTTP/1.1\r\nHost: {wrong}\r\n\r\n".encode())
            line = tcp.recv(4096).split(b"\r\n")[0]
            assert b" 400 " in line or b" 301 " in line and "X:" in wrong, line


def test_plain_http_on_a_tls_port(hayate) -> None:
    answer = requests.get(f"http://127.0.0.1:{hayate.ports['tls']}/", timeout=60)
    assert answer.status_code == 400 and "The plain HTTP request was sent to HTTPS port" in answer.text
    assert answer.headers["connection"] == "close"


def closed_within(tcp: socket.socket, seconds: float) -> bool:
    tcp.settimeout(seconds)
    try:
        while tcp.recv(65536):
            pass
        return True
    except ConnectionError:
        return True
    except TimeoutError:
        return False


def test_a_handshake_has_an_end(hayate) -> None:
    """A client that says nothing, one that stops in its hello, and one that sends nonsense; and a proxy without a header."""
    for port, words in [
        ("tls", b""), ("tls", b"\x16\x03\x01\x02\x00\x01\x00\x01"), ("tls", b"\x16\x03\x01\x40\x01" + b"x" * 0x4001),
        ("tls", b"\x80\x2e\x01\x00\x02"), ("proxy", b""), ("proxy", b"PROXY TCP4 1.2"), ("proxy", b"GET / HTTP/1.1\r\n\r\n"),
        ("proxy", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff"), ("both", b"PROXY UNKNOWN\r\n"),
    ]:  # fmt: skip
        with socket.create_connection(("127.0.0.1", hayate.ports[port]), timeout=60) as tcp:
            tcp.sendall(words)
            assert closed_within(tcp, 60), (port, words)
    assert hayate.run("status").returncode == 0


def test_the_proxy_protocol_is_believed_from_those_who_may_say_it(hayate, files) -> None:
    def seen(tcp) -> dict:
        tcp.sendall(b"GET /server.php HTTP/1.1\r\nHost: a\r\nX-Forwarded-Proto: https\r\nConnection: close\r\n\r\n")
        text = b""
        while piece := tcp.recv(65536):
            text += piece
        return json.loads(text.split(b"\r\n\r\n", 1)[1]) if b" 200 " in text[:20] else {"head": text}
    both = ("127.0.0.1", hayate.ports["both"])
    two = b"\r\n\r\n\0\r\nQUIT\n\x21\x21\x00\x24" + socket.inet_pton(socket.AF_INET6, "2001:db8::7") \
        + socket.inet_pton(socket.AF_INET6, "2001:db8::1") + (4711).to_bytes(2, "big") + (443).to_bytes(2, "big")  # fmt: skip
    for header, addr in [(b"PROXY TCP4 192.0.2.9 192.0.2.1 4711 443\r\n", "192.0.2.9"), (two, "2001:db8::7")]:
        with socket.create_connection(both, timeout=60) as tcp:
            tcp.sendall(header)
            with context(files / "one.pem").wrap_socket(tcp, server_hostname="a.example") as tls:
                got = seen(tls)
        assert (got["REMOTE_ADDR"], got["REMOTE_PORT"], got["SERVER_PORT"]) == (addr, "4711", "443")
        assert got["HTTPS"] == "on"
    # The client that the header names is no trusted proxy: what it says of itself counts for nothing.
    with socket.create_connection(("127.0.0.1", hayate.ports["proxy"]), timeout=60) as tcp:
        tcp.sendall(b"PROXY TCP4 192.0.2.9 192.0.2.1 4711 80\r\n")
        assert b" 301 " in seen(tcp)["head"]
    # Its own connection (a check): the socket's addresses hold, and it is trusted.
    with socket.create_connection(("127.0.0.1", hayate.ports["proxy"]), timeout=60) as tcp:
        tcp.sendall(b"PROXY UNKNOWN\r\n")
        assert seen(tcp)["REMOTE_ADDR"] == "127.0.0.1"
    # Somebody else at the same door.
    with socket.socket() as tcp:
        tcp.settimeout(10)
        tcp.bind(("127.0.0.3", 0))
        tcp.connect(("127.0.0.2", hayate.ports["port"]))
        try:
            tcp.sendall(b"PROXY TCP4 192.0.2.9 192.0.2.1 4711 80\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n")
        except ConnectionError:
            pass
        assert closed_within(tcp, 60)


def test_a_certificate_changes_under_load_with_no_failed_handshake(hayate, files) -> None:
    """Also: a broken file keeps the old one, and is spoken of."""
    port, failures, serials, stop = hayate.ports["tls"], [], set(), threading.Event()
    loose = ssl.create_default_context()
    loose.check_hostname, loose.verify_mode = False, ssl.CERT_NONE

    def visit() -> None:
        while not stop.is_set():
            try:
                with connect(port, "x.w.example", loose) as tls:
                    serials.add(serial(tls))
                    assert get(tls)[2] == b"ok x"
            except Exception as error:  # noqa: BLE001
                failures.append(repr(error))

    threads = [threading.Thread(target=visit) for _ in range(3)]
    [thread.start() for thread in threads]
    try:
        kept = (files / "two.pem").read_text()
        (files / "two.pem").write_text("nonsense")
        assert hayate.logged("a changed certificate cannot be used"), hayate.log()
        old = len(serials)
        new, key = self_signed(files, "next", ["b.example", "x.w.example"])
        # One after the other: for a moment they are no pair.
        key.replace(files / "two.key")
        new.replace(files / "two.pem")
        wanted = ssl.PEM_cert_to_DER_cert((files / "two.pem").read_text())
        wait_for(lambda: wanted in serials)
    finally:
        stop.set()
        [thread.join() for thread in threads]
    assert not failures and old == 1 and len(serials) == 2
    assert ssl.PEM_cert_to_DER_cert(kept) in serials
    # A front that starts again has the new one.
    os.kill(hayate.front, 9)
    wait_for(lambda: hayate.run("status").returncode == 0)
    with connect(port, "x.w.example", loose) as tls:
        assert serial(tls) == wanted


def test_a_changed_certificate_is_seen_after_an_upgrade_that_was_refused(hayate_command, tmp_path) -> None:
    """The fault: who looks at the files had ended with the program before, and nobody began to look again."""
    root, certificates = site.make(tmp_path / "site"), tmp_path / "certificates"
    certificates.mkdir()
    (root / "broken.php").write_text("<?php throw new RuntimeException('it does not boot');")
    self_signed(certificates, "one", ["a.example"])
    config = f"""
listen = ["127.0.0.1:{{port}}", {{ address = "127.0.0.1:{{tls}}", tls = true }}]
[tls]
certificates = [{{ certificate = "{certificates}/one.pem", key = "{certificates}/one.key" }}]
[[app]]
root = "{root}"
workers = 1
"""
    loose = ssl.create_default_context()
    loose.check_hostname, loose.verify_mode = False, ssl.CERT_NONE
    ports = {name: free_port() for name in ("port", "tls")}
    with TlsHayate(config, ports) as running:
        text = running._config.read_text()
        running._config.write_text(text + 'worker = "broken.php"\n')
        done = running.run("upgrade", timeout=60)
        assert done.returncode == 1 and "it does not boot" in done.stderr, done
        running._config.write_text(text)
        new, key = self_signed(certificates, "next", ["a.example"])
        key.replace(certificates / "one.key")
        new.replace(certificates / "one.pem")
        wanted = ssl.PEM_cert_to_DER_cert((certificates / "one.pem").read_text())

        def served() -> bool:
            with connect(ports["tls"], "a.example", loose) as tls:
                return serial(tls) == wanted

        wait_for(served)


@pytest.mark.parametrize("broken", ["cut short", "another's key", "gone"])
def test_a_front_that_starts_again_has_the_certificate_that_was_good_last(hayate, files, broken: str) -> None:
    """The fault: the master had handed the broken one on and kept it, so that a front that had no other had none."""
    port = hayate.ports["tls"]
    loose = ssl.create_default_context()
    loose.check_hostname, loose.verify_mode = False, ssl.CERT_NONE
    with connect(port, "a.example", loose) as tls:
        wanted = serial(tls)
    chain, key = files / "one.pem", files / "one.key"
    before = [(file, file.read_bytes()) for file in (chain, key)]
    said = hayate.log().count("the one before is served on") + hayate.log().count("the certificate that was read before is served on")
    try:
        if broken == "cut short":
            chain.write_bytes(chain.read_bytes()[:300])
        elif broken == "another's key":
            key.write_bytes((files / "two.key").read_bytes())
        else:
            key.unlink()
        wait_for(lambda: hayate.log().count("before is served on") > said)
        os.kill(hayate.front, 9)
        wait_for(lambda: hayate.run("status").returncode == 0)
        with connect(port, "a.example", loose) as tls:
            assert serial(tls) == wanted
        # Who asks is there to be told, and nothing has changed.
        refused = hayate.run("upgrade")
        assert refused.returncode == 1 and ("one.pem" in refused.stderr or "one.key" in refused.stderr)
    finally:
        for file, held in before:
            file.write_bytes(held)
    with connect(port, "a.example", loose) as tls:
        assert serial(tls) == wanted
    assert hayate.reload().returncode == 0


def wait_for(condition, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.1)


def test_a_reload_keeps_tickets_unless_clients_certificates_are_wanted_otherwise(hayate, files) -> None:
    made = context(files / "one.pem", version=ssl.TLSVersion.TLSv1_3)
    with connect(hayate.ports["tls"], "a.example", made) as tls:
        get(tls)
        session = tls.session
    assert hayate.reload().returncode == 0
    with connect(hayate.ports["tls"], "a.example", made, session=session) as tls:
        assert get(tls)[0] == 200 and tls.session_reused
        session = tls.session
    config = hayate._config
    text = config.read_text()
    try:
        config.write_text(text.replace('verify = "optional"', 'verify = "required"'))
        assert hayate.reload().returncode == 0
        # The fault: a ticket from before would have let it in without a certificate.
        with pytest.raises((ssl.SSLError, OSError)):
            with connect(hayate.ports["tls"], "a.example", made, session=session) as tls:
                get(tls)
        made.load_cert_chain(files / "client.pem", files / "client.key")
        with connect(hayate.ports["tls"], "a.example", made) as tls:
            assert get(tls)[0] == 200
    finally:
        config.write_text(text)
    assert hayate.reload().returncode == 0


#: Without TLS the way to it is an answer as well.
OK = (200, 301)


def is_let_go(connection: socket.socket) -> bool:
    """Whether a connection that idles is ended, by whatever TLS says at its end."""
    connection.settimeout(60)
    try:
        return connection.recv(1) == b""
    except (ssl.SSLError, ConnectionError):
        return True


def goes_away(h2: socket.socket) -> bool:
    """Whether the server sends GOAWAY by HTTP/2."""
    said = b""
    while part := h2.recv(65536):
        said += part
        rest = said
        while len(rest) >= 9:
            if rest[3] == 7:
                return True
            rest = rest[9 + int.from_bytes(rest[:3], "big") :]
    return False


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def test_a_reload_that_wants_something_else_of_clients_lets_those_go_who_are_there(hayate, files, version) -> None:
    made, alpn = context(files / "one.pem", version=version), context(files / "one.pem", version=version, alpn=["h2"])
    config, tls, proxy = hayate._config, hayate.ports["tls"], hayate.ports["proxy"]
    text = config.read_text()
    greeting = b"PROXY TCP4 10.1.2.3 10.0.0.1 1111 80\r\n"
    try:
        with (
            connect(tls, "a.example", made) as idle,
            connect(tls, "a.example", made) as busy,
            connect(tls, "a.example", alpn) as h2,
            socket.create_connection(("127.0.0.1", proxy)) as by_proxy,
            socket.create_connection(("127.0.0.1", hayate.port)) as plain,
        ):
            h2.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
            by_proxy.sendall(greeting)
            for connection in (idle, busy, by_proxy, plain):
                assert get(connection)[0] in OK
            # Nothing that concerns them.
            assert hayate.reload().returncode == 0
            for connection in (idle, busy, by_proxy, plain):
                assert get(connection)[0] in OK
            busy.sendall(b"GET /sleep.php?ms=3000 HTTP/1.1\r\nHost: a.example\r\n\r\n")
            time.sleep(0.5)
            changed = text.replace('verify = "optional"', 'verify = "required"').replace(f'"127.0.0.1:{proxy}", proxy_protocol = true', f'"127.0.0.1:{proxy}"')
            config.write_text(changed)
            assert hayate.reload().returncode == 0
            assert is_let_go(idle) and is_let_go(by_proxy)
            assert goes_away(h2)
            answer = b""
            while part := busy.recv(65536):
                answer += part
            assert answer.startswith(b"HTTP/1.1 200") and b"connection: close" in answer.lower(), "what runs is finished"
            assert get(plain)[0] in OK, "nothing has changed for it"
            made.load_cert_chain(files / "client.pem", files / "client.key")
            with connect(tls, "a.example", made) as known:
                assert get(known)[0] == 200
                config.write_text(changed.replace(f"{files}/clients.pem", f"{files}/two.pem"))
                assert hayate.reload().returncode == 0
                assert is_let_go(known)
            config.write_text(changed.replace(f'    {{ address = "127.0.0.1:{proxy}" }},\n', ""))
            with socket.create_connection(("127.0.0.1", proxy)) as gone:
                assert get(gone)[0] in OK
                assert hayate.reload().returncode == 0
                assert is_let_go(gone), "its listener is gone"
    finally:
        config.write_text(text)
        assert hayate.reload().returncode == 0


def test_the_least_version_is_kept_to_and_tickets_from_before_end_with_it(hayate, files) -> None:
    port = hayate.ports["tls"]
    contexts = {version: context(files / "one.pem", version=version) for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)}
    old, new = contexts.values()
    sessions = {}
    for made in (old, new):
        with connect(port, "a.example", made) as tls:
            assert get(tls)[0] == 200
            sessions[made] = tls.session
    for made in (old, new):
        with connect(port, "a.example", made, session=sessions[made]) as tls:
            assert get(tls)[0] == 200 and tls.session_reused, "the tickets are of no use before"
            sessions[made] = tls.session
    config = hayate._config
    text = config.read_text()
    try:
        config.write_text(text.replace("[tls]\n", '[tls]\nmin_version = "1.3"\n'))
        assert hayate.reload().returncode == 0
        for session in (None, sessions[old]):
            with pytest.raises(ssl.SSLError, match="(?i)protocol.version"):
                connect(port, "a.example", old, session=session)
        with connect(port, "a.example", new, session=sessions[new]) as tls:
            seen = json.loads(get(tls, "/server.php")[2])
            assert not tls.session_reused and (seen["SSL_PROTOCOL"], seen["SSL_SESSION_REUSED"]) == ("TLSv1.3", ".")
            sessions[new] = tls.session
        with connect(port, "a.example", new, session=sessions[new]) as tls:
            assert get(tls)[0] == 200 and tls.session_reused
    finally:
        config.write_text(text)
    assert hayate.reload().returncode == 0
    with connect(port, "a.example", old, session=sessions[old]) as tls:
        assert get(tls)[0] == 200 and not tls.session_reused


def test_what_check_says_of_certificates(hayate_command, files, tmp_path) -> None:
    root = site.make(tmp_path)
    self_signed(tmp_path, "soon", ["soon.example"], days=3)

    def check(tls: str, *flags: str) -> subprocess.CompletedProcess[str]:
        config = tmp_path / "hayate.toml"
        user = 'user = "www-data"\n' if ROOT else ""
        config.write_text(f'{user}listen = [":80", ":443"]\n[tls]\n{tls}\n[[app]]\nroot = "{root}"\nhosts = ["soon.example", "c.example"]\n')
        return subprocess.run([hayate_command, "check", "--config", config, *flags], capture_output=True, text=True, timeout=60)

    done = check('certificates = [{ certificate = "soon.pem", key = "soon.key" }]')
    assert done.returncode == 0, done.stderr
    assert "https://0.0.0.0:443" in done.stdout and re.search("soon.pem expires in [23] days; renew it", done.stdout)
    assert "c.example has no certificate" in done.stdout
    done = check(f'certificates = [{{ certificate = "{files}/one.pem", key = "{files}/one.key" }}]')
    assert "names no host of an application" in done.stdout
    for name, begins, ends, said in [
        ("past", -9, -2, r"past\.pem has expired; renew it"), ("future", 2, 40, r"future\.pem is not valid yet, but from \w+ +\d+ .*; is this"),
    ]:  # fmt: skip
        self_signed(tmp_path, name, ["soon.example"], between=(begins, ends))
        done = check(f'certificates = [{{ certificate = "{name}.pem", key = "{name}.key" }}]')
        assert done.returncode == 0, done.stderr
        warnings = [line for line in done.stdout.splitlines() if line.startswith("warning") and name in line]
        assert len(warnings) == 1 and re.search(said, warnings[0]), done.stdout
    own = (tmp_path / "soon.pem").read_text()
    (tmp_path / "cut.pem").write_text(own[:-30])
    (tmp_path / "turned.pem").write_text((files / "ca.pem").read_text() + own)
    own_pair = 'certificates = [{ certificate = "soon.pem", key = "soon.key" }]'
    published = [(root, "holds"), (f"{root}/none/acme", "holds"), (f"{root}/../{root.name}/acme", "holds"), (root.parent, "lies in")]
    openssl("x509", "-in", tmp_path / "soon.pem", "-outform", "der", "-out", tmp_path / "der.pem")
    openssl("ec", "-in", tmp_path / "soon.key", "-aes128", "-passout", "pass:secret", "-out", tmp_path / "sec1.key")
    openssl("pkey", "-in", tmp_path / "soon.key", "-aes128", "-passout", "pass:secret", "-out", tmp_path / "pkcs8.key")
    for tls, said in [
        ('certificates = [{ certificate = "soon.key", key = "soon.pem" }]', "soon.key and {tmp_path}/soon.pem: certificate and key are swapped".format(tmp_path=tmp_path)),
        ('certificates = [{ certificate = "der.pem", key = "soon.key" }]', "der.pem is no PEM, but holds other bytes; convert it: `openssl x509 -inform der`"),
        ('certificates = [{ certificate = "soon.pem", key = "sec1.key" }]', "sec1.key: its private key is encrypted"),
        ('certificates = [{ certificate = "soon.pem", key = "pkcs8.key" }]', "pkcs8.key: its private key is encrypted"),
        (f'certificates = [{{ certificate = "soon.pem", key = "{files}/one.key" }}]', "the private key is not the certificate's"),
        ('certificates = [{ certificate = "none.pem", key = "soon.key" }]', "none.pem cannot be read"),
        ('certificates = [{ certificate = "cut.pem", key = "soon.key" }]', "cut.pem: it holds no certificate in PEM (the line '-----END CERTIFICATE-----' is missing)"),
        ('certificates = [{ certificate = "turned.pem", key = "soon.key" }]', "turned.pem: its certificates are in the wrong order: the private key is that of number 2"),
        (f'certificates = [{{ certificate = "soon.pem", key = "soon.key" }}]\nverify = "optional"\nclient_ca = "cut.pem"', "'-----END CERTIFICATE-----' is missing"),
        ('certificates = [{ certificate = "soon.key", key = "soon.key" }]', "soon.key: it holds no certificate"),
        ('certificates = [{ certificate = "soon.pem", key = "soon.pem" }]', "soon.pem: it holds no private key"),
        ('acme = "nobody"', "is no mail address"),
        ('acme = "on"\nacme_directory = "http://ca.example"', "is no directory"),
        ('acme = "on"\non_demand = "*"', "allows too much"),
        ('acme = "on"\nverify = "required"', "client_ca"),
        ('acme = "on"\nacme_hosts = "*.example.org"', "wildcards need a certificate in files"),
        ('min_version = "1.1"', "min_version"),
        (f'{own_pair}\nacme_directory = "letsencrypt-staging"', "acme_directory: no authority is asked for certificates without acme"),
        (f'{own_pair}\non_demand = "soon.example"', "on_demand: no authority is asked for certificates without acme"),
        (f'{own_pair}\nclient_ca = "soon.pem"', 'client_ca: no client is asked for a certificate without verify; write verify = "required" or "optional"'),
        (f'{own_pair}\nverify = "off"\nclient_ca = "none.pem"', "client_ca: "),
        *((f'acme = "on"\nacme_storage = "{place}"', f"root: {root} {how} ") for place, how in published),
    ]:
        done = check(tls)
        assert done.returncode == 2 and said in done.stderr and "hayate.toml:" in done.stderr, (tls, done.stderr)


def test_a_self_signed_certificate_in_development(hayate_command, tmp_path) -> None:
    root = site.make(tmp_path)
    ports = {"port": free_port(), "tls": free_port()}
    config = 'listen = ["127.0.0.1:{port}", { address = "127.0.0.1:{tls}", tls = true }]\n[[app]]\nroot = "%s"\n' % root
    with TlsHayate(config, ports, workers=1, args=["--dev", "--tls", "localhost"]):
        loose = ssl.create_default_context()
        loose.check_hostname, loose.verify_mode = False, ssl.CERT_NONE
        with connect(ports["tls"], "localhost", loose) as tls:
            (tmp_path / "own.pem").write_text(ssl.DER_cert_to_PEM_cert(serial(tls)))
        with connect(ports["tls"], "localhost", context(tmp_path / "own.pem")) as tls:
            assert get(tls, host="localhost")[2] == b"ok x"


def test_where_keys_of_certificates_are_kept_is_not_published(hayate_command, tmp_path) -> None:
    root, other, config = site.make(tmp_path), tmp_path / "other", tmp_path / "hayate.toml"
    (other / "acme").mkdir(parents=True)
    for more, key in [('sendfile_roots = "other"', "sendfile_roots"), ('[[app.rule]]\npath = "/files"\nalias = "other"', "alias")]:
        for storage, how in [("other/acme", "holds"), ("other", "holds"), (".", "lies in")]:
            config.write_text(f'[tls]\nacme = "on"\nacme_storage = "{storage}"\n[[app]]\nroot = "{root}"\nhosts = "a.example"\n{more}\n')
            done = subprocess.run([hayate_command, "check", "--config", config], capture_output=True, text=True, timeout=60)
            # Above all it is above the document root.
            where = f"root: {root} lies in {tmp_path}" if storage == "." else f"{key}: {other} {how} {other}"
            assert done.returncode == 2 and where in done.stderr and 'acme_storage = "/var/lib/hayate/acme"' in done.stderr, done.stderr
