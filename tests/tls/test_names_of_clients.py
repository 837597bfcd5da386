"""Names in certificates of clients: what a script sees is what nginx's `$ssl_client_s_dn` and `$ssl_client_i_dn` say, letter by letter."""

from __future__ import annotations

import base64
import json
import os
import pathlib
import re
import ssl
import subprocess
import tempfile
from collections.abc import Iterator, Sequence

import pytest

from lib import site
from lib.process import running
from lib.servers import NginxFpm, free_port
from lib.tls import TlsHayate, connect, context, get, openssl, self_signed

CONFIG = """
listen = ["127.0.0.1:{port}", { address = "127.0.0.1:{tls}", tls = true }]
%s
[tls]
certificates = [{ certificate = "%s/server.pem", key = "%s/server.key" }]
verify = "required"
client_ca = "%s/ca.pem"
[[app]]
root = "%s"
workers = 1
"""

NGINX = """
listen 127.0.0.1:%d ssl;
ssl_certificate %s/server.pem;
ssl_certificate_key %s/server.key;
ssl_client_certificate %s/ca.pem;
ssl_verify_client on;
location = /names { return 200 "$ssl_client_s_dn\\n$ssl_client_i_dn"; }
"""

#: Subjects as `openssl req -subj` takes them, and the kinds of strings that it may use.
SUBJECTS = {
    "usual": ("/C=DE/ST=Bayern/L=Augsburg/O=Some, Inc/OU=R+D=1/CN=anna", "utf8only"),
    "person": ("/street=A 1/GN=A/SN=B/UID=anna/emailAddress=anna@a.example", "utf8only"),
    "organization": ("/organizationIdentifier=VATDE-1/pseudonym=p/title=Dr/dnQualifier=q/serialNumber=7/initials=ab", "utf8only"),
    "jurisdiction": ("/jurisdictionC=DE/jurisdictionST=BY/jurisdictionL=A/businessCategory=Private/postalCode=86150", "utf8only"),
    "generation": ("/generationQualifier=III/name=n/description=d/x500UniqueIdentifier=u/DC=example/DC=a", "utf8only"),
    "several": ("/C=DE/CN=x+OU=R/O=o+L=l+ST=s", "utf8only"),
    "several alike": ("/OU=b+OU=a+OU=c/CN=z+UID=a", "utf8only"),
    "not ASCII": ("/O=Müller & Söhne/CN=Ольга € 😀", "utf8only"),
    "BMP": ("/O=Müller/CN=Ольга €", "MASK:0x800"),
    "T61": ("/O=Müller/CN=ÿ", "MASK:0x4"),
    "universal": ("/O=Müller/CN= 😀 ", "MASK:0x100"),
    "marks": ('/O=a"b<c>d;e,f=g#h/CN=\\\\ \\+ \\/', "utf8only"),
    "edges": ("/CN= #a /O=#a/OU=  /L=#/ST= ", "utf8only"),
    "control": ("/O=a\tb\nc\x7fd/CN=\x01", "utf8only"),
    "printable": ("/O=It's (a) b.c-d:e?/CN=*.a.example", "default"),
}

UTF8, NUMERIC, PRINTABLE, T61, IA5, UNIVERSAL, BMP = 12, 18, 19, 20, 22, 28, 30
BIT_STRING, SEQUENCE, SET = 3, 0x30, 0x31
CN, O, OU = "2.5.4.3", "2.5.4.10", "2.5.4.11"  # noqa: E741

#: Subjects that openssl does not make: sets of a type, a kind of string and its bytes.
WRITTEN: dict[str, Sequence[Sequence[tuple[str, int, bytes]]]] = {
    "nothing": [],
    "an empty value": [[(O, UTF8, b"")], [(CN, PRINTABLE, b"")]],
    "unknown types": [[("1.2.3.4", UTF8, b"a")], [("2.999.1", PRINTABLE, b"b")], [("2.5.4.1000", UTF8, b"")], [(CN, UTF8, b"x")]],
    "a large number": [[(f"2.25.{(1 << 128) - 1}", UTF8, b"a")], [(f"1.3.{(1 << 70) + 5}", UTF8, b"long" * 50)]],
    "zeros": [[(CN, UTF8, b"a\xc3\xbc\0b\0")]],
    "ISO 8859-1": [[(O, T61, b"M\xfcller")], [(OU, IA5, b"\xe4")], [(CN, PRINTABLE, b"\xdf*@")]],
    "digits": [[(CN, NUMERIC, b" 12 ")]],
    "two bytes": [[(CN, BMP, " a, ".encode("utf-16-be"))], [(OU, BMP, b"\0#")], [(O, UNIVERSAL, "#\u20ac".encode("utf-32-be"))]],
    "bits": [[("2.5.4.45", BIT_STRING, b"\x04\xa0")], [(CN, UTF8, b"x")]],
    "no string": [[("2.5.4.16", SEQUENCE, b"\x0c\x01a\x0c\x01b" * 50)], [(CN, UTF8, b"x")]],
    "an order of its own": [[(OU, UTF8, b"R"), (CN, UTF8, b"x"), (O, UTF8, b"o"), (CN, UTF8, b"a")], [(O, UTF8, b"x"), (O, UTF8, b"x")]],
}


def item(tag: int, *parts: bytes) -> bytes:
    """DER."""
    content = b"".join(parts)
    length = len(content)
    head = bytes([length]) if length < 128 else (lambda size: bytes([128 + size]) + length.to_bytes(size, "big"))((length.bit_length() + 7) // 8)
    return bytes([tag]) + head + content


def items(der: bytes) -> list[bytes]:
    """What an item holds, each whole."""

    def head(at: int) -> tuple[int, int]:
        length, at = der[at + 1], at + 2
        if length >= 128:
            length, at = int.from_bytes(der[at : at + length - 128], "big"), at + length - 128
        return at, at + length

    at, end = head(0)
    found = []
    while at < end:
        _, after = head(at)
        found.append(der[at:after])
        at = after
    return found


def oid(dotted: str) -> bytes:
    first, second, *rest = map(int, dotted.split("."))
    numbers = b""
    for number in (40 * first + second, *rest):
        digits = [number & 127]
        while number := number >> 7:
            digits.insert(0, number & 127 | 128)
        numbers += bytes(digits)
    return item(6, numbers)


def subject(sets: Sequence[Sequence[tuple[str, int, bytes]]]) -> bytes:
    return item(SEQUENCE, *(item(SET, *(item(SEQUENCE, oid(kind), item(tag, value)) for kind, tag, value in one)) for one in sets))


def all_types() -> list[str]:
    """What this machine's OpenSSL has a name for, where types of attributes are numbered."""
    listed = re.findall(r"(?m)(?: = |, )([\d.]+)$", openssl("list", "-objects"))
    arcs = ("2.5.4.", "0.9.2342.19200300.100.1.", "1.2.643.100.", "1.3.6.1.4.1.311.60.2.1.", "1.3.6.1.5.5.7.9.")
    more = ("1.2.643.3.131.1.1", "1.3.6.1.4.1.311.20.2.3", *(f"1.2.840.113549.1.9.{last}" for last in (1, 2, 7, 8, 20)))
    return [oid for oid in dict.fromkeys(listed) if oid.startswith(arcs) or oid in more]


class Clients:
    """Certificates by one authority, whose own name is as bad."""

    def __init__(self, place: pathlib.Path) -> None:
        self.place = place
        self_signed(place, "server", ["a.example"])
        (place / "empty.conf").write_text("[req]\ndistinguished_name=dn\nstring_mask=utf8only\n[dn]\n")
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        openssl(
            "req", "-x509", *key, "-keyout", place / "ca.key", "-out", place / "ca.pem", "-days", "9", "-config", place / "empty.conf", "-utf8",
            "-subj", '/C=DE/O= Müller, "Söhne" /organizationIdentifier=VATDE-1/OU=b+CN=a+UID=1/emailAddress=ca@a.example',
            "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign",
        )  # fmt: skip
        openssl("genpkey", "-algorithm", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", place / "client.key")
        (place / "client.ext").write_text("basicConstraints=CA:FALSE\nextendedKeyUsage=clientAuth\n")
        self.made = 0

    def issued(self, name: str, mask: str = "utf8only") -> pathlib.Path:
        """For a subject in words."""
        self.made += 1
        config, request, chain = (self.place / f"{self.made}.{ending}" for ending in ("conf", "csr", "pem"))
        config.write_text(f"[req]\ndistinguished_name=dn\nstring_mask={mask}\n[dn]\n")
        openssl("req", "-new", "-key", self.place / "client.key", "-out", request, "-config", config, "-utf8", "-subj", name)
        openssl(
            "x509", "-req", "-in", request, "-CA", self.place / "ca.pem", "-CAkey", self.place / "ca.key", "-set_serial", str(self.made),
            "-days", "9", "-extfile", self.place / "client.ext", "-out", chain,
        )  # fmt: skip
        return chain

    def written(self, name: bytes) -> pathlib.Path:
        """For a subject in bytes, which openssl signs as it signs anything."""
        chain = self.issued("/CN=x")
        signed, algorithm, _ = items(ssl.PEM_cert_to_DER_cert(chain.read_text()))
        fields = items(signed)
        # version, serial, algorithm, issuer, validity, subject, …
        fields[5] = name
        signed = item(SEQUENCE, *fields)
        command = ["openssl", "dgst", "-sha256", "-sign", self.place / "ca.key"]
        signature = subprocess.run(command, input=signed, capture_output=True, check=True, timeout=60).stdout
        whole = item(SEQUENCE, signed, algorithm, item(BIT_STRING, b"\0", signature))
        chain.write_text(f"-----BEGIN CERTIFICATE-----\n{base64.encodebytes(whole).decode()}-----END CERTIFICATE-----\n")
        return chain


@pytest.fixture(scope="module")
def clients(tmp_path_factory) -> Clients:
    return Clients(tmp_path_factory.mktemp("names"))


@pytest.fixture(scope="module")
def beside(hayate_command, clients) -> Iterator[tuple[int, int]]:
    """The ports by TLS of nginx and of Hayate."""
    place = clients.place
    with tempfile.TemporaryDirectory() as directory:
        pathlib.Path(directory).chmod(0o755)
        root = site.make(pathlib.Path(directory))
        port, user = free_port(), 'user = "www-data"' if os.geteuid() == 0 else ""
        ports = {name: free_port() for name in ("port", "tls")}
        hayate = TlsHayate(CONFIG % (user, *[place] * 3, root), ports)
        with running(NginxFpm(root, extra=NGINX % (port, *[place] * 3)), hayate):
            yield port, ports["tls"]


def names(clients: Clients, chain: pathlib.Path, beside: tuple[int, int]) -> tuple[list[str], list[str]]:
    """Subject and issuer, by nginx and by Hayate."""
    made = context(clients.place / "server.pem")
    made.load_cert_chain(chain, clients.place / "client.key")
    nginx, hayate = beside
    with connect(nginx, "a.example", made) as tls:
        status, _, body = get(tls, "/names")
    assert status == 200, body
    with connect(hayate, "a.example", made) as tls:
        seen = json.loads(get(tls, "/server.php")[2])
    assert seen["SSL_CLIENT_VERIFY"] == "SUCCESS"
    return body.decode().split("\n"), [seen["SSL_CLIENT_S_DN"], seen["SSL_CLIENT_I_DN"]]


@pytest.mark.parametrize("case", SUBJECTS)
def test_subjects_that_openssl_makes(clients, beside, case: str) -> None:
    nginx, hayate = names(clients, clients.issued(*SUBJECTS[case]), beside)
    assert hayate == nginx


@pytest.mark.parametrize("case", WRITTEN)
def test_subjects_that_openssl_only_reads(clients, beside, case: str) -> None:
    nginx, hayate = names(clients, clients.written(subject(WRITTEN[case])), beside)
    assert hayate == nginx


def test_every_type_that_openssl_has_a_name_for(clients, beside) -> None:
    types = all_types()
    assert len(types) > 100
    nginx, hayate = names(clients, clients.written(subject([[(kind, UTF8, b"a")] for kind in types])), beside)
    assert hayate[0].split(",") == nginx[0].split(",")
