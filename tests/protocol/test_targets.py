"""Request targets as they come: what nginx hands to PHP raw, Hayate does too."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from lib import over
from lib.client import encode, exchange
from lib.servers import GENERIC_WORKER, Hayate, NginxFpm, running

SHOW = r"""<?php foreach (['REQUEST_URI', 'QUERY_STRING', 'SCRIPT_NAME', 'PATH_INFO', 'DOCUMENT_URI'] as $key) {
    echo $key, '=', bin2hex($_SERVER[$key] ?? ''), "\n";
}
echo bin2hex(serialize($_GET));"""

TARGETS = [
    b"/show.php?a=1",
    b'/show.php?a=<b>"c"`{|}\\^[]',
    b"/show.php?a[]=1&a[]=<2>",
    b"/show.php/x<y>\"z\"`?q",
    b"/show.php?latin=\xe9&utf8=\xc3\xa9",
    b"/show.php/\xe9\xff",
    b"/show.php?a=b#fragment",
    b"/show.php#fragment?a=b",
    b"/show.php?a=b?c=d",
    b"/show.php?%zz=%",
    b"/show.php?",
    b"http://other.test/show.php?x=<y>",
]


def is_lost(target: bytes) -> bool:
    """Whether the h2 crate resets it: what the http crate takes for no URI. It cuts a fragment off. See docs/tls.md, "What is left"."""
    path, _, query = target.partition(b"?")
    return bool(re.search(rb"[<>`]", path) or re.search(rb'[<>"]', query) or target.decode("utf-8", "replace").encode() != target)


@pytest.fixture(scope="module")
def servers(hayate_command, tmp_path_factory) -> Iterator[list]:
    root = tmp_path_factory.mktemp("targets")
    (root / "show.php").write_text(SHOW)
    for path in [root, *root.parents]:
        if path.name.startswith(("pytest", "targets")):
            path.chmod(0o755)
    worker = Hayate(root, worker=GENERIC_WORKER, workers=1)
    with running(NginxFpm(root), Hayate(root, workers=1), worker) as all_of_them:
        yield list(all_of_them)


@pytest.mark.parametrize("target", TARGETS, ids=repr)
def test_scripts_see_the_target_as_under_nginx(servers, target) -> None:
    request = encode("GET", target, [("Host", "a.test"), ("Connection", "close")])
    answers = [exchange(("127.0.0.1", server.port), request) for server in servers]
    reference = answers[0]
    if over.protocol == over.H2 and is_lost(target):
        assert all(answer.status == 0 for answer in answers[1:])
        return
    if over.protocol == over.H2 and b"#" in target:
        assert all(answer.status == 200 for answer in answers[1:])
        return
    assert reference.status == 200 and b"REQUEST_URI=" in reference.body, reference
    for mode, answer in zip(("classic", "worker"), answers[1:], strict=True):
        assert (answer.status, answer.body) == (200, reference.body), mode
