"""Media types of files, by their names: as with nginx and its own list, but where the registry has something better."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator

import pytest

from lib.client import encode, exchange
from lib.process import running
from lib.servers import Hayate, NginxFpm

#: Endings with Hayate's type and why it is not that of nginx 1.22. A newer nginx may say the same.
OTHERWISE = {
    "js": ("text/javascript", "RFC 9239; the other is obsolete"),
    "bmp": ("image/bmp", "RFC 7903"),
    "m4a": ("audio/mp4", "RFC 4337; nginx's is not registered"),
    "pdb": ("application/vnd.palm", "registered for these; nginx's is not"),
    "prc": ("application/x-mobipocket-ebook", "neither is registered; these are books by now"),
    "ra": ("audio/x-pn-realaudio", "neither is registered; RealNetworks calls it so"),
    "sea": ("application/octet-stream", "neither says more: a program that unpacks itself"),
}
#: What nginx has no type for, and endings in capitals.
BEYOND = {
    "otf": "font/otf", "OTF": "font/otf", "ttf": "font/ttf", "ttc": "font/collection", "Woff": "font/woff", "mjs": "text/javascript",
    "vcf": "text/vcard", "m4b": "audio/mp4", "m2t": "video/mp2t", "webmanifest": "application/manifest+json", "md": "text/markdown",
    "csv": "text/csv", "ics": "text/calendar", "vtt": "text/vtt", "flac": "audio/flac", "epub": "application/epub+zip", "xsl": "application/xslt+xml", "xslt": "application/xslt+xml",
}  # fmt: skip


def listed() -> dict[str, str]:
    """nginx's own list, by ending."""
    text = pathlib.Path("/etc/nginx/mime.types").read_text()
    return {ending: line[1] for line in re.finditer(r"(?m)^\s+([\w.+-]+/[\w.+-]+)\s+([^;]+);", text) for ending in line[2].split()}


@pytest.fixture(scope="module")
def beside(hayate_command, tmp_path_factory) -> Iterator[tuple[NginxFpm, Hayate]]:
    base = tmp_path_factory.mktemp("types")
    base.chmod(0o755)
    root = base / "site"
    root.mkdir()
    for ending in (*listed(), *BEYOND):
        # Long enough to be compressed.
        (root / f"a.{ending}").write_text("x" * 4000)
    with running(NginxFpm(root), Hayate(config=f'[[app]]\nroot = "{root}"\nphp = "off"\n')) as both:
        yield both


def fields(server, target: str) -> dict[str, str]:
    wanted = [("Host", "a.test"), ("Connection", "close"), ("Accept-Encoding", "gzip")]
    answer = exchange(("127.0.0.1", server.port), encode("GET", target, wanted))
    assert answer is not None and answer.status == 200, (server.name, target, answer)
    return {name.lower(): value for name, value in answer.headers}


def test_every_ending_of_nginx_has_its_type_but_those_that_are_better(beside) -> None:
    types = {ending: tuple(fields(server, f"/a.{ending}")["content-type"] for server in beside) for ending in listed()}
    assert len(types) > 90
    # What nginx answers is what its list says, so that the list is asked for and nothing else.
    assert {ending: nginx for ending, (nginx, _) in types.items()} == listed()
    wrong = {
        ending: {"nginx": nginx, "hayate": hayate}
        for ending, (nginx, hayate) in types.items()
        if hayate != (OTHERWISE[ending][0] if ending in OTHERWISE else nginx)
    }
    assert not wrong


def test_endings_that_nginx_does_not_know(beside) -> None:
    _, hayate = beside
    assert {ending: fields(hayate, f"/a.{ending}").get("content-type") for ending in BEYOND} == BEYOND


@pytest.mark.parametrize(
    ("ending", "packs"),
    [("ttf", True), ("otf", True), ("OTF", True), ("eot", True), ("mjs", True), ("vcf", True), ("woff", False), ("woff2", False), ("ts", False)],
)
def test_fonts_that_are_not_packed_are_compressed(beside, ending: str, packs: bool) -> None:
    """The fault: OpenType fonts had a type that no list of types to compress has."""
    _, hayate = beside
    assert ("content-encoding" in fields(hayate, f"/a.{ending}")) == packs
