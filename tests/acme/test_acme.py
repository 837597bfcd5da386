"""Certificates by themselves: a real certificate authority (pebble), which looks at a real server."""

from __future__ import annotations

import base64
import contextlib
import datetime
import json
import os
import pathlib
import pwd
import random
import re
import shutil
import ssl
import subprocess
import tempfile
from collections.abc import Iterator

import pytest
import requests

from lib import site
from lib.pebble import Pebble, wait_for
from lib.servers import Hayate, free_port
from lib.tls import TlsHayate, connect, context, get, openssl, serial

CONFIG = """
listen = ["127.0.0.1:{port}", { address = "127.0.0.1:{tls}", tls = true }]
[tls]
acme = "admin@example.com"
acme_directory = "%s"
acme_ca = "%s"
acme_storage = "%s"
%s
[[app]]
root = "%s"
hosts = [%s]
workers = 1
"""


@pytest.fixture
def place() -> Iterator[pathlib.Path]:
    with tempfile.TemporaryDirectory(prefix="acme-") as directory:
        path = pathlib.Path(directory)
        path.chmod(0o755)
        site.make(path)
        yield path


def ports() -> dict[str, int]:
    return {"port": free_port(), "tls": free_port()}


def plain(port: int, path: str) -> requests.Response:
    """What a visitor of a.example without TLS gets; hosts that no application has are sent nowhere."""
    return requests.get(f"http://127.0.0.1:{port}{path}", headers={"Host": "a.example"}, allow_redirects=False, timeout=60)


def hayate(place: pathlib.Path, pebble: Pebble, at: dict[str, int], more: str = "", hosts: str = '"a.example"') -> TlsHayate:
    root = next(path for path in place.iterdir() if path.is_dir() and path.name != "storage")
    return TlsHayate(CONFIG % (pebble.directory, pebble.root, place / "storage", more, root, hosts), at)


def served(port: int, host: str, pebble: Pebble) -> bytes | None:
    """The certificate that this host gets, verified, once a request is answered; None without."""
    with contextlib.suppress(OSError):
        with connect(port, host, context(pebble.issuer)) as tls:
            assert get(tls, host=host)[0] == 200
            return serial(tls)
    return None


def has(port: int, host: str, pebble: Pebble, server: TlsHayate) -> bytes:
    wait_for(lambda: served(port, host, pebble) is not None, why=server.log)
    got = served(port, host, pebble)
    assert got is not None
    return got


def ari(pebble: Pebble, der: bytes, start: datetime.timedelta) -> None:
    """Has the authority suggest a window that begins `start` from now and lasts an hour."""
    now = datetime.datetime.now(datetime.timezone.utc)
    def text(at: datetime.datetime) -> str:
        return at.strftime("%Y-%m-%dT%H:%M:%SZ")
    window = {"start": text(now + start), "end": text(now + start + datetime.timedelta(hours=1))}
    answer = pebble.manage(
        "/set-renewal-info/", certificate=ssl.DER_cert_to_PEM_cert(der),
        ariResponse='{"suggestedWindow":{"start":"%s","end":"%s"}}' % (window["start"], window["end"]),
    )  # fmt: skip
    assert answer.status_code == 200, answer.text


def test_first_issue_restart_and_renewal_when_the_authority_suggests_it(hayate_command, place) -> None:
    at = ports()
    with Pebble(at["port"], at["tls"]) as pebble:
        with hayate(place, pebble, at, hosts='"a.example", "b.example"') as server:
            first = has(at["tls"], "a.example", pebble, server)
            assert has(at["tls"], "b.example", pebble, server) != first
            (storage,) = (place / "storage").iterdir()
            assert (storage / "a.example.pem").stat().st_mode & 0o777 == 0o600
            assert not list((storage / "challenges").iterdir())
            # Others get their redirection; and what asks for what is no challenge.
            answer = plain(at["port"], "/.well-known/acme-challenge/none")
            assert answer.status_code == 301
        # It is kept.
        with hayate(place, pebble, at) as server:
            assert has(at["tls"], "a.example", pebble, server) == first
            assert "a certificate is ordered" not in server.log()
        ari(pebble, first, datetime.timedelta(days=-1))
        with hayate(place, pebble, at) as server:
            wait_for(lambda: served(at["tls"], "a.example", pebble) not in (None, first), why=server.log)
            assert server.logged("the authority suggests to renew the certificate now")


def test_an_account_that_the_authority_has_forgotten_is_replaced(hayate_command, place) -> None:
    at = ports()
    with Pebble(at["port"], at["tls"]) as pebble, hayate(place, pebble, at) as server:
        has(at["tls"], "a.example", pebble, server)
        (storage,) = (place / "storage").iterdir()
        before = json.loads((storage / "account.json").read_text())
        # It keeps nothing.
        pebble.stop()
        pebble.start()
        (server.dir / "hayate.toml").write_text((server.dir / "hayate.toml").read_text().replace('"a.example"', '"a.example", "b.example"'))
        assert server.reload().returncode == 0
        has(at["tls"], "b.example", pebble, server)
        assert server.logged("the authority does not know the account any more") and "no certificate was issued" not in server.log()
        assert json.loads((storage / "account.json").read_text()) != before == json.loads((storage / "account.forgotten").read_text())


def test_what_one_authority_gave_is_served_until_another_one_gives_its_own(hayate_command, place) -> None:
    """Also while that one is away, by a server that is started meanwhile, and where certificates are to be kept elsewhere."""
    at = ports()
    with Pebble(at["port"], at["tls"]) as one, Pebble(at["port"], at["tls"]) as other:
        with hayate(place, one, at) as server:
            first = has(at["tls"], "a.example", one, server)
            other.stop()
            as_it_was = (server.dir / "hayate.toml").read_text()
            text = as_it_was.replace(one.directory, other.directory).replace(str(one.root), str(other.root))
            (server.dir / "hayate.toml").write_text(text)
            assert server.reload().returncode == 0
            assert server.logged("no certificate was issued") and server.logged("the old one is served on")
            assert served(at["tls"], "a.example", one) == first
            (server.dir / "hayate.toml").write_text(text.replace(f"{place}/storage", f"{place}/storage/more"))
            assert server.reload().returncode == 0
            assert served(at["tls"], "a.example", one) == first
        with hayate(place, other, at) as server:
            assert served(at["tls"], "a.example", one) == first
            other.start()
            assert has(at["tls"], "a.example", other, server) != first


def test_a_store_that_is_removed_is_made_again(hayate_command, place) -> None:
    at = ports()
    with Pebble(at["port"], at["tls"]) as pebble, hayate(place, pebble, at) as server:
        first = has(at["tls"], "a.example", pebble, server)
        (storage,) = (place / "storage").iterdir()
        shutil.rmtree(storage)
        (server.dir / "hayate.toml").write_text((server.dir / "hayate.toml").read_text().replace('"a.example"', '"a.example", "b.example"'))
        assert server.reload().returncode == 0
        has(at["tls"], "b.example", pebble, server)
        assert served(at["tls"], "a.example", pebble) == first


def test_the_flag_for_one_host(hayate_command, place) -> None:
    """`hayate serve /srv/shop --tls a.example`: of TLS the file says only which authority, for that is not to be Let's Encrypt here."""
    root = next(place.iterdir())
    # With --tls an address of port 8080 stays plain beside others; who listens there on 127.0.0.1 is no matter.
    plain = f"127.{random.randrange(1, 255)}.{random.randrange(256)}.{random.randrange(1, 255)}"
    flags = ["--tls", "A.example", "--listen", f"{plain}:8080", *(["--user", "www-data"] if os.geteuid() == 0 else [])]
    with Pebble(8080, 1) as pebble:
        pebble.resolve("a.example", plain)
        config = f'[tls]\nacme_directory = "{pebble.directory}"\nacme_ca = "{pebble.root}"\nacme_storage = "{place / "storage"}"\n'
        with Hayate(root, config=config, workers=1, args=flags) as server:
            wait_for(lambda: served(server.port, "a.example", pebble) is not None, why=server.log)
            with connect(server.port, "a.example", context(pebble.issuer)) as tls:
                seen = json.loads(get(tls, "/server.php")[2])
            assert (seen["HTTPS"], seen["SSL_SERVER_NAME"], seen["SERVER_PORT"]) == ("on", "a.example", str(server.port))
            answer = requests.get(f"http://{plain}:8080/ok.php?x", headers={"Host": "a.example"}, allow_redirects=False, timeout=60)
            assert (answer.status_code, answer.headers["location"]) == (301, f"https://a.example:{server.port}/ok.php?x")
            # No other name is ordered, whoever asks for it.
            with contextlib.suppress(OSError):
                connect(server.port, "b.example", context(pebble.issuer)).close()
            assert server.log().count("a certificate is ordered") == 1
            if os.geteuid() == 0:
                assert (place / "storage").stat().st_uid == pwd.getpwnam("www-data").pw_uid


def test_tls_alpn_01_and_a_profile_of_short_life(hayate_command, place) -> None:
    at = ports()
    with Pebble(1, at["tls"]) as pebble:
        more = 'acme_challenge = "tls-alpn-01"\nacme_profile = "shortlived"'
        with hayate(place, pebble, at, more) as server:
            der = has(at["tls"], "a.example", pebble, server)
            (place / "got.pem").write_text(ssl.DER_cert_to_PEM_cert(der))
            week = subprocess.run(["openssl", "x509", "-in", place / "got.pem", "-noout", "-checkend", str(7 * 86400)])
            assert week.returncode == 1


def test_external_account_binding(hayate_command, place) -> None:
    at = ports()
    key = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W"
    with Pebble(at["port"], at["tls"], eab={"kid-1": key}) as pebble:
        with hayate(place, pebble, at) as server:
            assert server.logged("set acme_eab_kid and acme_eab_key"), server.log()
        (place / "eab").write_text(key + "\n")
        for failed in (place / "storage").rglob("*.failed"):
            failed.unlink()
        with hayate(place, pebble, at, f'acme_eab_kid = "kid-1"\nacme_eab_key = "{place}/eab"') as server:
            has(at["tls"], "a.example", pebble, server)


def test_a_name_that_is_served_elsewhere(hayate_command, place) -> None:
    """The authority finds another server, says so, and is not asked again at once, not even after a restart."""
    at = ports()
    with Pebble(at["port"], at["tls"]) as pebble:
        pebble.resolve("a.example", "127.0.0.9")
        with hayate(place, pebble, at) as server:
            assert server.logged("no certificate was issued"), server.log()
            log = server.log()
            assert "tried again in 60 s" in log and "clients of this name cannot connect by TLS" in log
            assert "port 80 (http-01)" in log or "look at its DNS records" in log
            # All else goes on.
            assert plain(at["port"], "/").status_code == 301
        with hayate(place, pebble, at) as server:
            wait_for(lambda: "serving" in server.log() or "serves" in server.log())
            assert "a certificate is ordered" not in server.log()


def test_the_authority_is_down_and_the_old_one_is_served_on(hayate_command, place) -> None:
    at = ports()
    with Pebble(at["port"], at["tls"]) as pebble:
        issuer = pebble.issuer
        with hayate(place, pebble, at) as server:
            first = has(at["tls"], "a.example", pebble, server)
        pebble.stop()
        # One that is about to end: half of its life is over.
        (storage,) = (place / "storage").iterdir()
        text = (storage / "a.example.pem").read_text()
        with hayate(place, pebble, at, hosts='"a.example", "new.example"') as server:
            assert server.logged("no certificate was issued"), server.log()
            assert server.logged("the authority cannot be reached")
            with connect(at["tls"], "a.example", context(issuer)) as tls:
                assert serial(tls) == first and get(tls)[0] == 200
        assert (storage / "a.example.pem").read_text() == text
        pebble.start()


def revoke(pebble: Pebble, storage: pathlib.Path, der: bytes) -> None:
    """As the account's owner does it, with the account's key (RFC 8555, 7.6)."""

    def code(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    def decode(text: str) -> bytes:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))

    account = json.loads((storage / "account.json").read_text())
    with tempfile.TemporaryDirectory() as directory:
        key, signed, signature = (pathlib.Path(directory) / name for name in ("key", "signed", "signature"))
        key.write_bytes(decode(account["key_pkcs8"]))
        urls = requests.get(pebble.directory, verify=str(pebble.root), timeout=60).json()
        payload = code(json.dumps({"certificate": code(der), "reason": 1}).encode())
        # One nonce in five is refused.
        for _ in range(50):
            nonce = requests.head(urls["newNonce"], verify=str(pebble.root), timeout=60).headers["Replay-Nonce"]
            head = code(json.dumps({"alg": "ES256", "kid": account["id"], "nonce": nonce, "url": urls["revokeCert"]}).encode())
            signed.write_text(f"{head}.{payload}")
            openssl("dgst", "-sha256", "-sign", key, "-keyform", "DER", "-out", signature, signed)
            # Two integers in DER, which are 32 bytes each here.
            numbers = re.findall(r"INTEGER +:([0-9A-F]+)", openssl("asn1parse", "-inform", "DER", "-in", signature))
            raw = b"".join(int(number, 16).to_bytes(32, "big") for number in numbers)
            words = {"protected": head, "payload": payload, "signature": code(raw)}
            answer = requests.post(urls["revokeCert"], json=words, verify=str(pebble.root), timeout=60, headers={"Content-Type": "application/jose+json"})
            if "badNonce" not in answer.text:
                break
    assert answer.status_code == 200, answer.text
    number = openssl_serial(der)
    status = pebble.manage(f"/cert-status-by-serial/{number}").json()
    assert status["Status"] == "Revoked", status


def openssl_serial(der: bytes) -> str:
    done = subprocess.run(["openssl", "x509", "-inform", "DER", "-noout", "-serial"], input=der, capture_output=True, check=True)
    return done.stdout.decode().strip().split("=")[1].lower()


def test_a_revoked_certificate_is_replaced(hayate_command, place) -> None:
    """Nobody tells the server: it asks the authority, which suggests a window of the past then (RFC 9773, 4.2)."""
    at = ports()
    with Pebble(at["port"], at["tls"]) as pebble:
        with hayate(place, pebble, at) as server:
            first = has(at["tls"], "a.example", pebble, server)
        (storage,) = (place / "storage").iterdir()
        asked = pebble.log().count("/renewalInfo/")
        with hayate(place, pebble, at) as server:
            # It has asked, and all is well.
            wait_for(lambda: pebble.log().count("/renewalInfo/") > asked, why=server.log)
            assert served(at["tls"], "a.example", pebble) == first
        revoke(pebble, storage, first)
        with hayate(place, pebble, at) as server:
            wait_for(lambda: served(at["tls"], "a.example", pebble) not in (None, first), why=server.log)
            assert server.logged("the authority suggests to renew the certificate now"), server.log()
            second = has(at["tls"], "a.example", pebble, server)
        # The new one is good: it stays.
        asked = pebble.log().count("/renewalInfo/")
        with hayate(place, pebble, at) as server:
            wait_for(lambda: pebble.log().count("/renewalInfo/") > asked, why=server.log)
            assert has(at["tls"], "a.example", pebble, server) == second
            assert "a certificate is ordered" not in server.log()


def test_two_servers_with_one_store_order_once(hayate_command, place) -> None:
    """And the one that the authority does not look at gets the certificate as well."""
    at, other = ports(), ports()
    with Pebble(at["port"], at["tls"]) as pebble:
        with hayate(place, pebble, at) as one, hayate(place, pebble, other) as two:
            first = has(at["tls"], "a.example", pebble, one)
            wait_for(lambda: served(other["tls"], "a.example", pebble) == first, 150, two.log)
            ordered = (one.log() + two.log()).count("a certificate is ordered")
            assert ordered == 1, one.log() + two.log()


def test_the_other_server_is_asked_for_the_challenge(hayate_command, place) -> None:
    at, other = ports(), ports()
    # The authority comes to the second server only, which orders nothing.
    with Pebble(other["port"], other["tls"]) as pebble:
        with hayate(place, pebble, other, 'acme_hosts = []\non_demand = "none.example"') as two:
            with hayate(place, pebble, at) as one:
                has(at["tls"], "a.example", pebble, one)
                assert "a certificate is ordered" not in two.log()


def test_on_demand_behind_its_list_only(hayate_command, place) -> None:
    at = ports()
    with Pebble(at["port"], at["tls"]) as pebble:
        more = 'acme_hosts = []\non_demand = "*.shops.example"'
        with hayate(place, pebble, at, more, hosts='"*.shops.example", "*.others.example"') as server:
            assert served(at["tls"], "one.others.example", pebble) is None
            has(at["tls"], "one.shops.example", pebble, server)
            log = server.log()
            assert "one.shops.example" in log and "host=\"one.others.example\"" not in log
            assert served(at["tls"], "a.b.shops.example", pebble) is None


def test_an_address_that_is_asked_decides_which_names_are_served_on_demand(hayate_command, place) -> None:
    """It is a script of the application that is served."""
    at = ports()
    root = next(place.iterdir())
    (root / "ask.php").write_text(
        "<?php file_put_contents(__DIR__ . '/asked.txt', $_GET['domain'] . PHP_EOL, FILE_APPEND);"
        "http_response_code($_GET['domain'] === 'one.shops.example' ? 200 : 404);"
    )
    root.chmod(0o777)
    more = f"""acme_hosts = []
redirect_http = false
on_demand = "*.shops.example"
on_demand_ask = "http://127.0.0.1:{at["port"]}/ask.php"
"""
    hosts = '"*.shops.example", "127.0.0.1"'
    with Pebble(at["port"], at["tls"]) as pebble:
        with hayate(place, pebble, at, more, hosts) as server:
            assert served(at["tls"], "two.shops.example", pebble) is None
            issued = has(at["tls"], "one.shops.example", pebble, server)
            assert served(at["tls"], "two.shops.example", pebble) is None
            asked = set((root / "asked.txt").read_text().split())
            assert asked == {"one.shops.example", "two.shops.example"}
            assert "is ordered host=\"two.shops.example\"" not in server.log()
        # What was issued is there at once, and nobody asks for leave to use it.
        (root / "asked.txt").unlink()
        with hayate(place, pebble, at, more, hosts) as server:
            assert served(at["tls"], "one.shops.example", pebble) == issued
            assert not (root / "asked.txt").exists()


def test_a_rate_limit_is_waited_for(hayate_command, place) -> None:
    """Pebble has none: a small server says it, in an authority's words (RFC 8555, 6.6)."""
    import http.server
    import threading

    at = ports()
    port = free_port()
    with Pebble(at["port"], at["tls"]) as pebble:

        class Limited(http.server.BaseHTTPRequestHandler):
            def answer(self) -> None:
                base = f"https://localhost:{port}"
                nonce = ("Replay-Nonce", "n0nce")
                if self.path == "/dir":
                    self.send(200, {name: base + "/" + name for name in ("newNonce", "newAccount", "newOrder")})
                elif self.path == "/newNonce":
                    self.send(200, {}, nonce)
                elif self.path == "/newAccount":
                    self.send(201, {"status": "valid"}, nonce, ("Location", base + "/account/1"))
                else:
                    self.send(429, {"type": "urn:ietf:params:acme:error:rateLimited", "detail": "too many"}, nonce)

            do_GET = do_HEAD = do_POST = answer

            def send(self, status: int, body: dict, *headers: tuple[str, str]) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                text = json.dumps(body).encode()
                self.send_response(status)
                for name, value in [("Content-Length", str(len(text))), *headers]:
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                pass

        limited = http.server.ThreadingHTTPServer(("127.0.0.1", port), Limited)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(pebble.dir / "pebble.pem", pebble.dir / "pebble.key")
        limited.socket = tls.wrap_socket(limited.socket, server_side=True)
        threading.Thread(target=limited.serve_forever, daemon=True).start()
        pebble.directory = f"https://localhost:{port}/dir"
        try:
            with hayate(place, pebble, at) as server:
                assert server.logged("no certificate was issued"), server.log()
                assert server.logged("too many") and server.logged("tried again in 3600 s")
                assert server.logged("staging")
        finally:
            limited.shutdown()
            limited.server_close()
    assert openssl("version")
