"""The comparison finds what differs, and an accepted difference accepts no more than it says."""

from __future__ import annotations

import dataclasses

import pytest

from lib.client import Response, exchange

from .compare import Accepted, Difference, compare, shell_match
from .dsl import UPLOAD_NAME, get

SAME = Response(
    version="HTTP/1.1",
    status=200,
    reason="OK",
    headers=[("Date", "x"), ("Content-Type", "text/plain"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")],
    body=b"one\ntwo\nthree",
    framing="chunked",
    complete=True,
    rest=b"",
)


def parts(other: Response, reference: Response = SAME, **how: object) -> list[str]:
    return [difference.part for difference in compare(get("", **how), reference, other, [UPLOAD_NAME])]


def changed(**fields: object) -> Response:
    return dataclasses.replace(SAME, **fields)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, []),
        ({"status": 201, "reason": "Created", "body": b"another"}, ["status"]),
        ({"reason": "Fine"}, ["reason"]),
        ({"headers": SAME.headers[1:]}, ["header:date"]),
        ({"headers": [*SAME.headers, ("X-More", "1")]}, ["header:x-more"]),
        ({"headers": SAME.headers[:3]}, ["header:set-cookie"]),
        ({"headers": [*SAME.headers[:2], *reversed(SAME.headers[2:])]}, ["header:set-cookie"]),
        ({"headers": [(name.upper(), value) for name, value in SAME.headers]}, []),
        ({"body": b"one\ntwo\nTHREE"}, ["body"]),
        ({"body": b"one\nthree"}, ["body"]),
        ({"complete": False}, ["framing"]),
        ({"rest": b"x"}, ["framing"]),
        ({"framing": "length", "headers": [*SAME.headers, ("Content-Length", "13")]}, []),
    ],
)
def test_each_difference_is_found(fields: dict[str, object], expected: list[str]) -> None:
    assert parts(changed(**fields)) == expected


def test_a_length_that_the_script_stated_is_compared() -> None:
    stated = changed(headers=[*SAME.headers, ("Content-Length", "13")])
    assert parts(SAME, stated) == ["header:content-length"]


def test_streaming_is_compared_where_asked_for() -> None:
    streaming = changed(first_body_byte=0.01, complete_at=0.8)
    assert parts(SAME, streaming, streams=True) == ["streaming"]
    assert parts(SAME, streaming) == []


def test_what_varies_is_replaced() -> None:
    assert parts(changed(body=b"/tmp/phpAAAAAA"), changed(body=b"/tmp/phpBBBBBB")) == []
    assert parts(changed(body=b"/tmp/phpAAAAAA"), changed(body=b"/tmp/nope")) == ["body"]


def test_a_page_of_hayate_that_tells_too_much_is_found() -> None:
    headers = [("Date", "x"), ("Content-Type", "text/html"), ("Content-Length", "5")]
    page = changed(status=404, headers=headers, body=b"nginx")
    assert parts(changed(status=404, headers=headers, body=b"plain"), page) == ["server page"]
    assert parts(changed(status=404, headers=headers, body=b"in /var/www"), page) == [
        "server page",
        "server page leaks",
    ]
    assert parts(changed(status=403, headers=headers, body=b"plain"), page) == ["status"]


def test_an_accepted_difference_accepts_no_more_than_it_says() -> None:
    entry = Accepted("theme/case", "body", "a reason", request="GET ?a*", reference=r"one \d", hayate="two")
    accepted = Difference("body", "one 1", "two")
    assert entry.covers(get("?a=1"), accepted)
    assert not entry.covers(get("?b=1"), accepted)
    assert not entry.covers(get("?a=1"), dataclasses.replace(accepted, part="status"))
    assert not entry.covers(get("?a=1"), dataclasses.replace(accepted, reference="one x"))
    assert not entry.covers(get("?a=1"), dataclasses.replace(accepted, hayate="two and more"))
    assert not entry.covers(get("?a=1"), dataclasses.replace(accepted, hayate=None))


def test_patterns_know_the_star_only() -> None:
    assert shell_match("GET ?a[]=1", "GET ?a[]*")
    assert not shell_match("GET ?a[]=1", "GET ?a?]=1")


def test_the_client_reads_what_a_server_really_sends(fleet: dict) -> None:
    """One exchange with nginx, to the byte: head, framing and end."""
    port = fleet["default"].server("reference").port
    request = b"GET /routing/static/text.txt HTTP/1.0\r\nRange: bytes=0-4\r\n\r\n"
    response = exchange(("127.0.0.1", port), request)
    assert response is not None
    assert (response.status, response.reason, response.body) == (206, "Partial Content", b"plain")
    assert (response.framing, response.complete, response.rest) == ("length", True, b"")
