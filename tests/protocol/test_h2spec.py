"""h2spec, by others: what RFC 7540 asks of a server of HTTP/2, case by case, over TLS and with prior knowledge."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterator

import pytest

from lib import site
from lib.servers import REPOSITORY, free_port
from lib.tls import TlsHayate, self_signed

H2SPEC = REPOSITORY / "target/h2spec/h2spec"
if not H2SPEC.exists() and os.environ.get("HAYATE_REQUIRE_ALL") != "1":
    pytest.skip("h2spec is not there (scripts/setup --test builds it)", allow_module_level=True)

CONFIG = """
http2_prior_knowledge = true
listen = ["127.0.0.1:{port}", { address = "127.0.0.1:{tls}", tls = true }]
[tls]
redirect_http = false
certificates = [{ certificate = "%s/one.pem", key = "%s/one.key" }]
[[app]]
root = "%s"
workers = 2
"""
#: Cases in all, with those that are no duty ("strict").
CASES = 146
#: Which cases fail with prior knowledge, and why that is right.
DIFFERENCES = {
    ("http2/3.5", "Sends invalid connection preface"): "without TLS it may be a request of HTTP/1, and gets that protocol's 400 before the connection ends",
}


@pytest.fixture(scope="module")
def server(hayate_command) -> Iterator[TlsHayate]:
    with tempfile.TemporaryDirectory() as directory:
        place = pathlib.Path(directory)
        place.chmod(0o755)
        self_signed(place, "one", ["a.example"])
        root = site.make(place)
        # Some cases are about a stream that is open still: the answer may not be there before the client's next frame.
        (root / "slow.php").write_text("<?php usleep(1000 * (int) $_GET['ms']); echo 'an answer';")
        with TlsHayate(CONFIG % (place, place, root), {"port": free_port(), "tls": free_port()}) as running:
            yield running


def play(*arguments: str, ms: int = 30) -> dict[tuple[str, str], str]:
    """What becomes of each case: "passed", "skipped", or why it failed."""
    with tempfile.TemporaryDirectory() as directory:
        report = pathlib.Path(directory) / "report.xml"
        command = [H2SPEC, "--strict", "--timeout", "20", "--path", f"/slow.php?ms={ms}", "--junit-report", report, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert report.exists(), done.stdout + done.stderr
        cases = {}
        for case in ET.parse(report).iter("testcase"):
            failed = case.find("failure") if case.find("failure") is not None else case.find("error")
            said = "passed" if failed is None else " ".join("".join(failed.itertext()).split()) or "failed"
            cases[case.attrib["package"], case.attrib["classname"]] = "skipped" if case.find("skipped") is not None else said
        return cases


@pytest.mark.plain("it is HTTP/2 in any case")
@pytest.mark.parametrize("over", ["tls", "prior knowledge"])
def test_h2spec(server, over) -> None:
    where = ["--port", str(server.ports["tls"]), "--tls", "--insecure"] if over == "tls" else ["--port", str(server.ports["port"])]
    cases = play(*where)
    assert len(cases) == CASES, sorted(cases)
    # On a busy machine the client may have been held up between two frames: such a case has its time then, alone.
    others = {case: said for case, said in cases.items() if said != "passed"}
    for package in {package for package, _ in others}:
        again = play(*where, package, ms=1000)
        others.update({case: said for case, said in again.items() if case in others})
    found = {case: said for case, said in others.items() if said != "passed"}
    assert found.keys() == (DIFFERENCES.keys() if over != "tls" else set()), found
    assert server.run("status").returncode == 0
    assert not re.search("panicked|fault of Hayate", server.log())
