"""A part of the suites `security` and `protocol` over TLS and over HTTP/2. All of them: `pytest tests/security tests/protocol --over tls`, or `h2`."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from lib import over
from lib.process import temporary_directory

HERE = pathlib.Path(__file__).parent
#: Quick ones, in which what is asked and what is answered is the point: beneath TLS how bytes come and go, and who is said to ask.
BENEATH_TLS = ("security/test_who_asks.py", "security/test_strict_http.py", "protocol/test_http.py", "protocol/test_early_hints.py")
#: HTTP/2 has another form for all of it.
FILES = {
    over.TLS: BENEATH_TLS,
    over.H2: (
        *BENEATH_TLS, "security/test_published.py", "protocol/test_targets.py", "protocol/test_many_headers.py", "protocol/test_sent_files_encoding.py",
        "protocol/test_rules.py", "protocol/test_static_sites.py", "protocol/test_compression.py", "protocol/test_h2_unread_body.py",
    ),
}  # fmt: skip
#: So many pass at the least.
LEAST = {over.TLS: 150, over.H2: 300}
#: Of those what takes long: a gigabyte that Python puts into frames, or takes out of them.
LEFT_OUT = "not large_uploads and not gibibyte"


@pytest.mark.plain("it starts such runs itself")
@pytest.mark.parametrize("protocol", [over.TLS, over.H2])
def test_over(hayate_command, protocol) -> None:
    # What has no form in HTTP/2 is skipped there.
    env = {name: value for name, value in os.environ.items() if not name.startswith(("HAYATE_REQUIRE_ALL", "PYTEST_"))}
    # A further run closes the directory that all runs share, until its first test, to those that servers of this one run as.
    root = temporary_directory("over")
    env["PYTEST_DEBUG_TEMPROOT"] = str(root)
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "-k", LEFT_OUT, "--over", protocol]
    done = subprocess.run(
        [*command, *(str(HERE.parent / file) for file in FILES[protocol])], capture_output=True, text=True, timeout=900, env=env, cwd=HERE.parents[1]
    )
    shutil.rmtree(root, ignore_errors=True)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2000:]
    passed, skipped = (re.search(rf"(\d+) {word}", done.stdout) for word in ("passed", "skipped"))
    # Were most of it left out, nothing would be proven.
    assert passed and int(passed[1]) > LEAST[protocol] and (skipped is None or int(skipped[1]) < 75), done.stdout[-2000:]
