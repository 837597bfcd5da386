"""A part of the cases over TLS and over HTTP/2, each compared with nginx over the same. All of them: `pytest tests/parity --over tls`, or `h2`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lib import over

from .fleet import Servers, Site
from .profiles import PROFILES
from .test_parity import CASES, check

#: What may differ with the protocol: what PHP is told of a request, headers both ways, bodies.
THEMES = ("headers", "input", "server", "upload")
PART = [case for case in CASES if case.theme in THEMES and case.profile == "default"]


@pytest.fixture(scope="module", params=[over.TLS, over.H2])
def servers(request: pytest.FixtureRequest, site: Site, hayate_command) -> Iterator[Servers]:
    before, over.protocol = over.protocol, request.param
    servers = Servers(site, PROFILES["default"])
    try:
        yield servers
    finally:
        servers.stop()
        over.protocol = before


@pytest.mark.parametrize("case", PART, ids=repr)
def test_classic_over(case, servers: Servers) -> None:
    check(case, "classic", servers.reference(case), servers.play(case, "classic"))


def test_most_requests_have_a_form_in_http2(servers: Servers) -> None:
    """What is left out is the exception: an empty comparison would prove nothing."""
    if over.protocol != over.H2:
        return
    played = sum(len(servers.reference(case)) for case in PART)
    assert played > 0.8 * sum(len(case.requests) for case in PART)
