"""Certificates for tests, made by openssl, and a Hayate whose addresses are the configuration's."""

from __future__ import annotations

import datetime
import http.client
import pathlib
import socket
import ssl
import subprocess
from collections.abc import Sequence

from .servers import Hayate


def openssl(*arguments: str | pathlib.Path) -> str:
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def self_signed(
    directory: pathlib.Path,
    name: str,
    hosts: Sequence[str],
    *,
    key: Sequence[str] = ("ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
    days: int = 30,
    between: tuple[int, int] | None = None,
    addresses: Sequence[str] = (),
) -> tuple[pathlib.Path, pathlib.Path]:
    """`name`.pem and `name`.key in `directory`; the first is its own authority. `between`: days from now, in place of now and `days`."""
    chain, private = directory / f"{name}.pem", directory / f"{name}.key"
    names = ",".join([*(f"DNS:{host}" for host in hosts), *(f"IP:{address}" for address in addresses)])
    extensions = ["-subj", f"/CN={name}", "-addext", f"subjectAltName={names}"]
    # Newer Pythons take no authority without.
    extensions += ["-addext", "keyUsage=critical,digitalSignature,keyCertSign"]
    if between is None:
        openssl("req", "-x509", "-newkey", *key, "-nodes", "-keyout", private, "-out", chain, "-days", str(days), *extensions)
        return chain, private
    # Only its `ca` takes dates, before OpenSSL 3.4.
    request, place = directory / f"{name}.csr", directory / f"{name}.ca"
    openssl("req", "-newkey", *key, "-nodes", "-keyout", private, "-out", request, *extensions)
    place.mkdir()
    (place / "index.txt").touch()
    (place / "ca.conf").write_text(
        f"[ca]\ndefault_ca=own\n[own]\ndatabase={place}/index.txt\nnew_certs_dir={place}\nrand_serial=yes\n"
        "default_md=sha256\npolicy=any\ncopy_extensions=copy\nemail_in_dn=no\nunique_subject=no\n[any]\ncommonName=supplied\n"
    )
    now = datetime.datetime.now(datetime.timezone.utc)
    begins, ends = ((now + datetime.timedelta(days=day)).strftime("%Y%m%d%H%M%SZ") for day in between)
    openssl(
        "ca", "-batch", "-selfsign", "-notext", "-config", place / "ca.conf", "-keyfile", private, "-in", request,
        "-out", chain, "-startdate", begins, "-enddate", ends,
    )  # fmt: skip
    return chain, private


def issued(directory: pathlib.Path, name: str, hosts: Sequence[str], authority: str, usage: str) -> tuple[pathlib.Path, pathlib.Path]:
    """`name`.pem and `name`.key, signed by a :func:`self_signed` one."""
    chain, private, request = (directory / f"{name}.{ending}" for ending in ("pem", "key", "csr"))
    extensions = directory / f"{name}.ext"
    names = "\nsubjectAltName=" + ",".join(f"DNS:{host}" for host in hosts) if hosts else ""
    extensions.write_text(f"basicConstraints=CA:FALSE\nextendedKeyUsage={usage}{names}\n")
    openssl(
        "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", private, "-out", request,
        "-utf8", "-subj", f"/C=DE/O=Some, Inc/CN={name}",
    )  # fmt: skip
    openssl(
        "x509", "-req", "-in", request, "-CA", directory / f"{authority}.pem", "-CAkey", directory / f"{authority}.key",
        "-set_serial", "0x00A1B2", "-days", "9", "-extfile", extensions, "-out", chain,
    )  # fmt: skip
    return chain, private


def context(authority: pathlib.Path, *, alpn: Sequence[str] = (), version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=str(authority))
    # What newer Pythons add asks for more than certificates of a testing authority have.
    made.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if alpn:
        made.set_alpn_protocols(list(alpn))
    if version:
        made.minimum_version = made.maximum_version = version
    return made


def connect(port: int, host: str, made: ssl.SSLContext, *, session: ssl.SSLSession | None = None) -> ssl.SSLSocket:
    tcp = socket.create_connection(("127.0.0.1", port), timeout=60)
    try:
        return made.wrap_socket(tcp, server_hostname=host, session=session)
    except BaseException:
        tcp.close()
        raise


def get(tls: ssl.SSLSocket, target: str = "/ok.php?x", host: str = "a.example") -> tuple[int, dict[str, str], bytes]:
    tls.sendall(f"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    answer = http.client.HTTPResponse(tls)
    answer.begin()
    headers = {name.lower(): value for name, value in answer.getheaders()}
    return answer.status, headers, answer.read()


def serial(tls: ssl.SSLSocket) -> bytes:
    """What tells one certificate from another."""
    return tls.getpeercert(binary_form=True)


class TlsHayate(Hayate):
    """Listens where its configuration says; `{port}` in it is a free port, `{tls}`, `{proxy}` and `{both}` are others."""

    def __init__(self, config: str, ports: dict[str, int], **more) -> None:
        for name, port in ports.items():
            config = config.replace("{" + name + "}", str(port))
        self.ports = ports
        super().__init__(config=config, **more)

    def _says_where(self) -> bool:
        return True

    def command(self) -> Sequence[str]:
        command = list(super().command())
        at = command.index("--listen")
        del command[at : at + 2]
        self.port = self.ports["port"]
        return command
