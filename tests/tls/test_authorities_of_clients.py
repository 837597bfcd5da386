"""Whom the certificates in `client_ca` let in: authorities those whom they may sign for, all others only themselves."""

from __future__ import annotations

import json
import os
import pathlib
import ssl
import subprocess
import tempfile

import pytest

from lib import site
from lib.pebble import wait_for
from lib.servers import ROOT, free_port
from lib.tls import TlsHayate, connect, context, get, openssl, self_signed

CONFIG = """
listen = ["127.0.0.1:{port}", { address = "127.0.0.1:{tls}", tls = true }]
%s
log_level = "debug"
[tls]
certificates = [{ certificate = "%s/server.pem", key = "%s/server.key" }]
verify = "optional"
client_ca = "%s/clients.pem"
[[app]]
root = "%s"
workers = 1
"""

CA = "basicConstraints=critical,CA:TRUE"
SIGNS = "keyUsage=critical,keyCertSign,cRLSign"
LEAF = "basicConstraints=CA:FALSE"

#: What is named in client_ca: a name, and its extensions.
NAMED = {
    "good": [CA, SIGNS],
    "plain": [CA],
    "itself": [LEAF, "keyUsage=digitalSignature"],
    "nothing": ["subjectAltName=DNS:x.example"],
    "noencrypt": [LEAF, "keyUsage=keyEncipherment"],
    "nosign": [CA, "keyUsage=digitalSignature,cRLSign"],
    "ofservers": [CA, SIGNS, "extendedKeyUsage=serverAuth"],
    "client": [CA, SIGNS, "extendedKeyUsage=clientAuth"],
    "any": [CA, SIGNS, "extendedKeyUsage=serverAuth,anyExtendedKeyUsage"],
    "short": [CA + ",pathlen:0", SIGNS],
    "long": [CA + ",pathlen:1", SIGNS],
}  # fmt: skip
DATES = {"past": ("20200101000000Z", "20210101000000Z"), "future": ("20900101000000Z", "20910101000000Z")}


class Made:
    """Certificates by openssl's `ca`, the only one that takes dates before OpenSSL 3.4."""

    def __init__(self, place: pathlib.Path) -> None:
        self.place = place
        self_signed(place, "server", ["a.example"])
        (place / "index.txt").touch()
        (place / "ca.conf").write_text(
            f"[ca]\ndefault_ca=own\n[own]\ndatabase={place}/index.txt\nnew_certs_dir={place}\nrand_serial=yes\n"
            "default_md=sha256\npolicy=any\nemail_in_dn=no\nunique_subject=no\n[any]\ncommonName=supplied\n[req]\ndistinguished_name=dn\n[dn]\n"
        )
        for name, extensions in NAMED.items():
            self.make(name, None, extensions)
        for name, dates in DATES.items():
            self.make(name, None, [CA, SIGNS], dates)
        names = [*NAMED, *DATES]
        (place / "clients.pem").write_text("".join((place / f"{name}.pem").read_text() for name in names))
        for name in names:
            self.make(f"by-{name}", name, [LEAF, "keyUsage=digitalSignature", "extendedKeyUsage=clientAuth"])
        self.make("enciphers", "good", [LEAF, "keyUsage=keyEncipherment"])
        self.make("no-usage", "good", [LEAF])
        for name, extensions in {"below-short": [CA, SIGNS], "below-long": [CA, SIGNS], "below-good": [CA, "keyUsage=cRLSign"], "below-plain": [CA]}.items():
            self.make(name, name.removeprefix("below-"), extensions)
            self.make(f"far-{name}", name, [LEAF])
            chain = place / f"far-{name}.pem"
            chain.write_text(chain.read_text() + (place / f"{name}.pem").read_text())

    def make(self, name: str, by: str | None, extensions: list[str], dates: tuple[str, str] = ("20240101000000Z", "20890101000000Z")) -> None:
        place, signer = self.place, by or name
        chain, private, request, wanted = (place / f"{name}.{ending}" for ending in ("pem", "key", "csr", "ext"))
        openssl(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", private, "-out", request, "-subj", f"/CN={name}",
            "-config", place / "ca.conf",
        )  # fmt: skip
        wanted.write_text("\n".join(extensions) + "\n")
        who = ["-cert", place / f"{by}.pem"] if by else ["-selfsign"]
        openssl(
            "ca", "-batch", *who, "-notext", "-config", place / "ca.conf", "-keyfile", place / f"{signer}.key", "-in", request, "-out", chain,
            "-extfile", wanted, "-startdate", dates[0], "-enddate", dates[1],
        )  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Made:
    return Made(tmp_path_factory.mktemp("authorities"))


@pytest.fixture(scope="module")
def hayate(hayate_command, made):
    with tempfile.TemporaryDirectory() as directory:
        pathlib.Path(directory).chmod(0o755)
        root = site.make(pathlib.Path(directory))
        user = 'user = "www-data"' if os.geteuid() == 0 else ""
        ports = {name: free_port() for name in ("port", "tls")}
        with TlsHayate(CONFIG % (user, *[made.place] * 3, root), ports) as running:
            yield running


def shown(hayate, made: Made, name: str, version: ssl.TLSVersion | None = None) -> str:
    """Whom a script sees; an error is the alert."""
    client = context(made.place / "server.pem", version=version)
    client.load_cert_chain(made.place / f"{name}.pem", made.place / f"{name}.key")
    with connect(hayate.ports["tls"], "a.example", client) as tls:
        seen = json.loads(get(tls, "/server.php")[2])
    assert seen["SSL_CLIENT_VERIFY"] == "SUCCESS"
    return seen["SSL_CLIENT_S_DN"]


@pytest.mark.parametrize("name", [*(f"by-{name}" for name in ("good", "plain", "client", "any", "short", "long")), "no-usage", "far-below-long", "far-below-plain"])
def test_an_authority_lets_in_whom_it_may_sign_for(hayate, made, name: str) -> None:
    assert shown(hayate, made, name) == f"CN={name}"
    assert shown(hayate, made, name, ssl.TLSVersion.TLSv1_2) == f"CN={name}"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        *((f"by-{name}", "UnknownIssuer") for name in ("itself", "nothing", "noencrypt", "nosign", "ofservers")),
        *((f"by-{name}", "has expired or is not valid yet") for name in DATES),
        ("far-below-short", "pathLenConstraint"), ("far-below-good", "may sign no certificates"), ("enciphers", "lacks digitalSignature"),
    ],
)  # fmt: skip
def test_nobody_is_let_in_by_one_that_may_not_sign_for_him(hayate, made, name: str, why: str) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError)):
        pytest.fail(f"let in as {shown(hayate, made, name)}")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        pytest.fail(f"let in as {shown(hayate, made, name, ssl.TLSVersion.TLSv1_2)}")
    wait_for(lambda: why in hayate.log(), 60)


@pytest.mark.parametrize(("name", "good"), [("itself", True), ("nothing", True), ("nosign", True), ("plain", True), ("noencrypt", False), ("good", False), ("past", False)])
def test_a_certificate_that_is_named_is_good_by_itself(hayate, made, name: str, good: bool) -> None:
    if good:
        assert shown(hayate, made, name) == f"CN={name}"
    else:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            shown(hayate, made, name)


def test_check_warns_of_those_that_are_not_valid_or_no_authorities(hayate_command, made, tmp_path) -> None:
    root, config = site.make(tmp_path), tmp_path / "hayate.toml"

    def check(client_ca: str) -> list[str]:
        (tmp_path / "clients.pem").write_text(client_ca)
        user = 'user = "www-data"' if ROOT else ""
        text = CONFIG % (user, *[made.place] * 3, root)
        text = text.replace("{port}", "8080").replace("{tls}", "8443").replace(f"{made.place}/clients.pem", f"{tmp_path}/clients.pem")
        config.write_text(text)
        done = subprocess.run([hayate_command, "check", "--config", config], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return [line for line in done.stdout.splitlines() if "client_ca" in line]

    def pem(name: str) -> str:
        return (made.place / f"{name}.pem").read_text()

    assert check(pem("good") + pem("plain") + pem("client") + pem("any") + pem("short")) == []
    for name, said in [
        ("past", "has expired (Jan  1 00:00:00 2021 +00:00)"), ("future", "is not valid yet, but from Jan  1 "), ("itself", "is no authority's"),
        ("nosign", "its keyUsage lacks keyCertSign"), ("ofservers", "its extendedKeyUsage lacks clientAuth"),
    ]:  # fmt: skip
        [line] = check(pem("good") + pem(name))
        assert line.startswith("warning") and f"client_ca: certificate 2 (CN={name}) " in line and said in line, line
    many = check(pem("itself") * 10)
    assert len(many) == 9 and "2 more certificates" in many[-1], many


@pytest.mark.parametrize(("others", "told"), [(14, True), (17, False)])
def test_more_names_than_fit_are_not_told(hayate_command, made, tmp_path, others: int, told: bool) -> None:
    # About 4 KB each.
    units = "".join(f"/OU={unit:064}" for unit in range(54))
    authorities = [(made.place / "good.pem").read_text()]
    for i in range(others):
        openssl(
            "req", "-x509", "-key", made.place / "good.key", "-subj", f"/CN=many{i}{units}", "-config", made.place / "ca.conf", "-addext", CA,
            "-out", tmp_path / "one.pem", "-days", "9",
        )  # fmt: skip
        authorities.append((tmp_path / "one.pem").read_text())
    (tmp_path / "clients.pem").write_text("".join(authorities))
    with tempfile.TemporaryDirectory() as directory:
        pathlib.Path(directory).chmod(0o755)
        user = 'user = "www-data"' if os.geteuid() == 0 else ""
        ports = {name: free_port() for name in ("port", "tls")}
        config = CONFIG % (user, made.place, made.place, tmp_path, site.make(pathlib.Path(directory)))
        with TlsHayate(config, ports) as running:
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                assert shown(running, made, "by-good", version) == "CN=by-good"
            command = ["openssl", "s_client", "-connect", f"127.0.0.1:{ports['tls']}", "-servername", "a.example"]
            said = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60).stdout
            assert ("CN = many0" in said) == told, said
            assert ("No client certificate CA names sent" in said) != told, said
